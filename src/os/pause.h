// What any thread does at its ticks, for all: for a part of the time, whoever does it.
#pragma once

#include "base/atomic.h"
#include "base/bits.h"
#include "os/os.h"

struct pause {
    // Relaxed, both: written by whoever has just done it, read at ticks; who reads one of each does it once more, or later. They guard no
    // other memory and pair with nothing.
    _Atomic(uint64_t) since_ticks, ticks;
};

// Differences alone: the processor's counter may go back, where a process or its machine is restored on another. It is over then.
static inline bool pause_is_over(const struct pause *pause) {
    return os_ticks() - atomic_load_relaxed(&pause->since_ticks) >=
           atomic_load_relaxed(&pause->ticks);
}

// It is over at once.
static inline void pause_end(struct pause *pause) {
    atomic_store_relaxed(&pause->ticks, 0);
}

// It was done since `begin_ticks`: not again for so many times as long, as far as that is from `least_ticks` to `most_ticks`.
static inline void pause_begin(struct pause *pause, uint64_t begin_ticks, uint64_t times,
                               uint64_t least_ticks, uint64_t most_ticks) {
    const uint64_t now_ticks = os_ticks();
    const uint64_t taken_ticks = now_ticks - begin_ticks;
    // More than that went back.
    const uint64_t known_ticks = taken_ticks < UINT64_MAX / 2 / times ? taken_ticks : 0;
    atomic_store_relaxed(&pause->ticks,
                         greatest_u64(least_ticks, least_u64(times * known_ticks, most_ticks)));
    atomic_store_relaxed(&pause->since_ticks, now_ticks);
}
