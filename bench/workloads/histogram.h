/* A histogram of durations with the same relative width of buckets everywhere: 32 to a doubling, so
 * that every percentile is known to 3 % (as Tene's HdrHistogram does it). Durations are counted in
 * ticks of the processor's clock and converted when they are printed. */
#pragma once

#include "frame.h"

enum { HISTOGRAM_SUB_BITS = 5, HISTOGRAM_SUBS = 1 << HISTOGRAM_SUB_BITS };
enum { HISTOGRAM_BUCKETS = (64 - HISTOGRAM_SUB_BITS + 1) * HISTOGRAM_SUBS };

struct histogram {
    uint64_t counts[HISTOGRAM_BUCKETS];
    uint64_t total, longest_ticks;
};

/* The processor's own clock, read when all earlier instructions have finished. */
static inline uint64_t histogram_ticks(void) {
#if defined(__x86_64__)
    unsigned processor;
    return __builtin_ia32_rdtscp(&processor);
#else
    uint64_t ticks;
    __asm__ volatile("isb; mrs %0, cntvct_el0" : "=r"(ticks)::"memory");
    return ticks;
#endif
}

/* Below 32 ticks each value has a bucket; above, the five bits after the highest one choose it. */
static inline size_t histogram_bucket(uint64_t ticks) {
    if (ticks < HISTOGRAM_SUBS) {
        return (size_t)ticks;
    }
    const unsigned shift = 63u - (unsigned)__builtin_clzll(ticks) - HISTOGRAM_SUB_BITS;
    return ((size_t)shift << HISTOGRAM_SUB_BITS) + (size_t)(ticks >> shift);
}

static inline void histogram_count(struct histogram *histogram, uint64_t ticks) {
    histogram->counts[histogram_bucket(ticks)]++;
    histogram->total++;
    if (ticks > histogram->longest_ticks) {
        histogram->longest_ticks = ticks;
    }
}

void histogram_merge(struct histogram *into, const struct histogram *from);

/* A JSON object: count, p50 to p99_999, max, and [[upper end, count], ...]; all in nanoseconds. */
void histogram_print(struct text *text, const struct histogram *histogram, double ns_per_tick);

/* The clock's rate, by comparison with the system's: call once before and once after a time of at
 * least some milliseconds. */
struct histogram_clock {
    uint64_t ns, ticks;
};
void histogram_clock_start(struct histogram_clock *clock);
double histogram_ns_per_tick(const struct histogram_clock *clock);

/* What a measurement of nothing gives: the cost of reading the clock, the median of many. */
uint64_t histogram_empty_ticks(void);
