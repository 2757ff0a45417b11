// What the tests of the learner have in common: a class that grows by itself, and how much was decided.
#pragma once

#include "isolate.h"

#include "api/alloc.h"
#include "control/learner.h"
#include "thread/cache.h"

static inline uint64_t decided(void) {
    return atomic_load_relaxed(&decision_log.decided);
}

// Blocks of the class come and go in bulk: its capacity grows as far as it may by itself. Returns what it is then.
static inline uint32_t grow(uint64_t class_index, unsigned count) {
    static void *blocks[90000];
    assert_in_range(count, 1, ARRAY_COUNT(blocks));
    for (unsigned round = 0; round < 20; round++) {
        for (unsigned i = 0; i < count; i++) {
            blocks[i] = alloc(size_classes[class_index].block_bytes);
        }
        for (unsigned i = 0; i < count; i++) {
            dealloc(blocks[i]);
        }
    }
    return thread_cache->magazines[class_index].capacity;
}
