// Log-linear histograms: eight buckets for each power of two, so that a value is known to 12.5 %. Values below 16 have
// a bucket each.
#pragma once

#include "base/atomic.h"
#include "base/bits.h"

#define HISTOGRAM_STEPS_LOG2 3
#define HISTOGRAM_STEPS (1u << HISTOGRAM_STEPS_LOG2)
#define HISTOGRAM_BUCKETS ((64 - HISTOGRAM_STEPS_LOG2 + 1) * HISTOGRAM_STEPS)

struct histogram {
    // Relaxed: one writer at a time, read by readers outside of the process; pairs with nothing.
    _Atomic(uint64_t) sum;
    _Atomic(uint64_t) buckets[HISTOGRAM_BUCKETS];
};

static inline unsigned histogram_bucket(uint64_t value) {
    if (value < HISTOGRAM_STEPS) {
        return (unsigned)value;
    }
    const unsigned power = bit_highest(value);
    const unsigned step = (unsigned)(value >> (power - HISTOGRAM_STEPS_LOG2)) % HISTOGRAM_STEPS;
    return (power - HISTOGRAM_STEPS_LOG2 + 1) * HISTOGRAM_STEPS + step;
}

// The lowest value of a bucket.
static inline uint64_t histogram_lowest(unsigned bucket) {
    if (bucket < HISTOGRAM_STEPS) {
        return bucket;
    }
    const unsigned shift = bucket / HISTOGRAM_STEPS - 1;
    return (uint64_t)(HISTOGRAM_STEPS + bucket % HISTOGRAM_STEPS) << shift;
}

static inline void histogram_add(struct histogram *histogram, uint64_t value) {
    atomic_bump_owned(&histogram->sum, value);
    atomic_bump_owned(&histogram->buckets[histogram_bucket(value)], 1u);
}
