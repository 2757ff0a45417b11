// A library whose constructor allocates before main, and that frees in its destructor, after exit()
// began. Linked before everything else.
#include "behaviour.h"

void *early_block(void);
size_t early_bytes(void);

static void *block;
static void *blocks[500];

__attribute__((constructor(101))) static void begin(void) {
    block = malloc(5000);
    require(block != NULL);
    pattern_fill(block, 5000, 1);
    for (size_t i = 0; i < 500; i++) {
        blocks[i] = i % 2 == 0 ? malloc(i * 37) : calloc(i + 1, 11);
        require(blocks[i] != NULL);
    }
    for (size_t i = 0; i < 500; i += 3) {
        free(blocks[i]);
        blocks[i] = NULL;
    }
}

__attribute__((destructor(101))) static void end(void) {
    require(pattern_differs(block, 5000, 1) == 5000);
    for (size_t i = 0; i < 500; i++) {
        free(blocks[i]);
    }
    void *late = malloc(100000);
    require(late != NULL);
    free(late);
    free(block);
    behaviour_say("destructor of the early library");
}

void *early_block(void) {
    return block;
}

size_t early_bytes(void) {
    return 5000;
}
