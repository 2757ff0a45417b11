// The counters, as counters.def lists them: their numbers, and the process-wide ones. A heap has an
// array of its own for what happens under its lock, or in its own thread alone; statistics add both.
#pragma once

#include "base/atomic.h"

#define COUNTER(name, unit, help) COUNTER_##name,
#define GAUGE(name, unit, help)
enum counter {
#include "config/counters.def"
    COUNTER_COUNT
};

#define COUNTER(name, unit, help)
#define GAUGE(name, unit, help) GAUGE_##name,
enum gauge {
#include "config/counters.def"
    GAUGE_COUNT
};

struct counters {
    // Relaxed: each stands alone and pairs with nothing.
    _Atomic(uint64_t) value[COUNTER_COUNT];
};

// Events under no heap's lock. All of them are rare: an atomic add each.
HIDDEN extern struct counters process_counters;

static inline void count_event(enum counter counter, uint64_t amount) {
    atomic_add_relaxed(&process_counters.value[counter], amount);
}
