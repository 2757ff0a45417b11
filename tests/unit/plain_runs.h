// Runs as slabs take them, and what waits to be purged, for the tests of the arena.
#pragma once

#include "isolate.h"

#include "space/arena.h"

static inline struct run *take_plain(unsigned page_count) {
    uint64_t used;
    struct run *run = arena_take(page_count, PAGE_BYTES, false, &used);
    assert_non_null(run);
    return run;
}

static inline uint64_t dirty_bytes(void) {
    struct arena_totals totals;
    arena_totals(&totals);
    return totals.dirty_bytes;
}
