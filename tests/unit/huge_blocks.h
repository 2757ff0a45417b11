// Huge blocks made, marked and freed with the table checked each time, for the tests of huge blocks.
#pragma once

#include "isolate.h"

#include "config/counters.h"
#include "fake_os.h"
#include "heap/huge.h"
#include "space/page_map.h"

static inline char *make(size_t bytes) {
    char *block = huge_alloc(bytes, PAGE_BYTES, false);
    assert_non_null(block);
    assert_int_equal((uintptr_t)block % PAGE_BYTES, 0);
    assert_int_equal(huge_check(), 0);
    return block;
}

static inline struct huge *huge_of(const void *block) {
    struct huge *huge = huge_find((uintptr_t)block);
    assert_non_null(huge);
    assert_int_equal(huge->start, (uintptr_t)block);
    return huge;
}

static inline void drop(char *block) {
    assert_true(huge_free(huge_of(block), (uintptr_t)block));
    assert_int_equal(huge_check(), 0);
}

// Marks one byte per 4 KiB.
static inline void mark(char *block, size_t bytes, char with) {
    for (size_t at = 0; at < bytes; at += 4096) {
        block[at] = with;
    }
}

static inline void check_marked(const char *block, size_t bytes, char with) {
    for (size_t at = 0; at < bytes; at += 4096) {
        assert_int_equal(block[at], with);
    }
}

static inline void check_entries(const char *block, size_t bytes, bool huge) {
    for (size_t at = 0; at < bytes; at += PAGE_BYTES) {
        const uint64_t entry = page_map_get((uintptr_t)block + at);
        assert_int_equal(page_entry_kind(entry), huge ? PAGE_KIND_HUGE : PAGE_KIND_NONE);
        assert_int_equal(huge_find((uintptr_t)block + at + 100) != NULL, huge);
    }
}

static inline struct huge_totals totals(void) {
    struct huge_totals result;
    huge_totals(&result);
    return result;
}

static inline uint64_t counted(enum counter counter) {
    return atomic_load_relaxed(&process_counters.value[counter]);
}

// A block of `bytes` whose first pages come from `count` freed ones of 3, 4, ... MiB.
static inline char *make_of_pieces(unsigned count, size_t bytes) {
    char *freed[HUGE_PIECES_MAX];
    for (unsigned i = 0; i < count; i++) {
        freed[i] = make((3 + i) * MIB);
        mark(freed[i], (3 + i) * MIB, (char)(3 + i));
    }
    for (unsigned i = 0; i < count; i++) {
        drop(freed[i]);
    }
    char *block = make(bytes);
    check_entries(block, bytes, true);
    return block;
}
