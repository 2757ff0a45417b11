// A thread that has used a size class for a while: an allocator that looks harder at the first few
// operations no longer does.
#pragma once

#include "misuse.h"

static void warm_up(size_t bytes) {
    enum { COUNT = 300 };
    void *blocks[COUNT];
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < COUNT; i++) {
            blocks[i] = malloc(bytes);
            require(blocks[i] != NULL);
        }
        for (int i = 0; i < COUNT; i++) {
            free(blocks[i]);
        }
    }
}
