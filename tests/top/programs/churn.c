// Replaces blocks for ever and counts what it did: churn THREADS BLOCKS FILE
//
// Each thread holds BLOCKS blocks of 16 to 1,023 bytes and replaces one at random after the other. FILE, made by the
// caller, has room for a count of 8 bytes in each 64, one for each thread: the blocks replaced so far.
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { COUNT_SPACING = 64, STEP = 256 };

static unsigned block_count;
static char *counts;

static uint32_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

static void *replace(void *argument) {
    const uintptr_t thread = (uintptr_t)argument;
    volatile uint64_t *done = (volatile uint64_t *)(counts + thread * COUNT_SPACING);
    uint64_t state = 977 + thread;
    char **blocks = calloc(block_count, sizeof *blocks);
    for (;;) {
        for (unsigned i = 0; i < STEP; i++) {
            const unsigned slot = next_random(&state) % block_count;
            free(blocks[slot]);
            blocks[slot] = malloc(16 + next_random(&state) % 1008);
            blocks[slot][0] = 1;
        }
        *done += STEP;
    }
    return NULL;
}

int main(int count, char **values) {
    if (count != 4) {
        return 2;
    }
    const unsigned threads = (unsigned)atoi(values[1]);
    block_count = (unsigned)atoi(values[2]);
    const int file = open(values[3], O_RDWR);
    counts = mmap(NULL, threads * COUNT_SPACING, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (counts == MAP_FAILED) {
        perror("churn");
        return 1;
    }
    for (uintptr_t i = 1; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, replace, (void *)i) != 0) {
            return 1;
        }
    }
    replace((void *)0);
}
