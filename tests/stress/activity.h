// What a process does that mostly waits: enough for the allocator to notice that time passes.
#pragma once

#include "behaviour.h"

static void little_activity(unsigned int ms) {
    uint64_t end = now_ms() + ms;
    uint64_t seed = 1;
    // Also on a busy machine there is activity: a round every 15 ms at least.
    for (unsigned int rounds = 0; now_ms() < end || rounds < ms / 15; rounds++) {
        void *blocks[300];
        for (int i = 0; i < 300; i++) {
            blocks[i] = malloc(16 + random_below(&seed, 1000));
            require(blocks[i] != NULL);
        }
        for (int i = 0; i < 300; i++) {
            free(blocks[i]);
        }
        sleep_ms(10);
    }
}
