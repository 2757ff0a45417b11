// Blocks of slabs: the slab of one as the arena finds it, and the order in which they are handed out.
#pragma once

#include "isolate.h"

#include "space/arena.h"

static inline struct run *slab_of(const void *block) {
    struct run *slab = arena_find((uintptr_t)block);
    assert_non_null(slab);
    return slab;
}

// Slabs list what they hand out with the highest address first; the last one is used first.
static inline void reverse(void **blocks, unsigned count) {
    for (unsigned i = 0; i < count / 2; i++) {
        void *block = blocks[i];
        blocks[i] = blocks[count - 1 - i];
        blocks[count - 1 - i] = block;
    }
}
