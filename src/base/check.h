// Violated invariants: each is counted, and printed as one line on standard error that names the
// structure, the invariant and the values that should have agreed:
//
//   hakmem: check: slab 0x7f2e40010000: free_count == blocks in free_bits: 12, 13
//
// Of many, the first CHECK_LINES_MAX are printed. Nothing here allocates or takes a lock.
#pragma once

#include "base/base.h"

#define CHECK_LINES_MAX 64

struct check {
    const char *structure;
    uint64_t where;  // its address, or its number
    size_t violations;
};

// A new round: the next lines are printed again, up to the limit.
void check_begin(void);

// Tells how many lines the round left out.
void check_end(void);

void check_violated(struct check *check, const char *invariant, uint64_t a, uint64_t b);

// `a` and `b` are the values that the invariant relates.
static inline void check_that(struct check *check, bool holds, const char *invariant, uint64_t a,
                              uint64_t b) {
    if (unlikely(!holds)) {
        check_violated(check, invariant, a, b);
    }
}

static inline void check_equal(struct check *check, const char *invariant, uint64_t a, uint64_t b) {
    check_that(check, a == b, invariant, a, b);
}
