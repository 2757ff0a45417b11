// The slab of a block, as the arena finds it.
#pragma once

#include "isolate.h"

#include "space/arena.h"

static inline struct run *slab_of(const void *block) {
    struct run *slab = arena_find((uintptr_t)block);
    assert_non_null(slab);
    return slab;
}
