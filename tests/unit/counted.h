// What the process has counted, all heaps together.
#pragma once

#include "control/stats.h"

static inline uint64_t counted(enum counter counter) {
    struct stats stats;
    stats_collect_counters(&stats);
    return stats.counter[counter];
}
