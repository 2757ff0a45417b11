// Two heaps side by side, and misuse that is reported instead of ending the test.
#pragma once

#include "isolate.h"

#include <string.h>

#include "config/options.h"
#include "fake_os.h"
#include "found_slab.h"
#include "heap/heap.h"
#include "heap/heap_check.h"
#include "space/page_map.h"

static struct heap heap, other;

static inline void start(void) {
    page_map_init();
    heap_init(&heap, 2);
    heap_init(&other, 3);
}

static inline void check(void) {
    assert_int_equal(heap_check(&heap), 0);
    assert_int_equal(arena_check(), 0);
}

// In rising order.
static inline unsigned take(struct heap *from, uint64_t class_index, unsigned want, void **blocks) {
    const unsigned got = heap_take(from, class_index, want, blocks);
    assert_true(got >= 1);
    reverse(blocks, got);
    return got;
}

static inline void *take_one(struct heap *from, uint64_t class_index) {
    void *block;
    assert_int_equal(take(from, class_index, 1, &block), 1);
    return block;
}

static inline uint64_t misuses(void) {
    return atomic_load_relaxed(&process_counters.value[COUNTER_misuses]);
}

static inline void begin_misuse(void) {
    options.abort = 0;
    start();
    stderr_begin();
}

static inline void expect_report(const char *text) {
    const char *said = stderr_end();
    if (strstr(said, text) == NULL) {
        fail_msg("standard error says '%s', not '%s'", said, text);
    }
    check();
    assert_int_equal(heap_check(&other), 0);
}
