// Blocks of many sizes with marks in them, for tests of the entry points.
#pragma once

#include "isolate.h"

#include "base/bits.h"
#include "control/check.h"

static inline void check(void) {
    assert_int_equal(check_all(), 0);
}

// A byte in each 4 KiB and the last one.
static inline void mark(char *block, size_t bytes, char with) {
    for (size_t at = 0; at < bytes; at += 4096) {
        block[at] = with;
    }
    if (bytes > 0) {
        block[bytes - 1] = with;
    }
}

static inline void check_marked(const char *block, size_t bytes, char with) {
    for (size_t at = 0; at < bytes; at += 4096) {
        assert_int_equal(block[at], with);
    }
}

static const size_t sizes[] = {
    1,     15,    16,    17,    100,    1023, 1024,    1025,        4096,
    10000, 65535, 65536, 65537, 100000, MIB,  2 * MIB, 2 * MIB + 1, 5 * MIB,
};
