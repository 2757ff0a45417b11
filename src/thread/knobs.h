// Knobs: what slow paths read, and a profile or the learner (control/learner.c) turns. The hot paths read none.
// Knobs of one class of one cache are in its magazine (cache.h); those of all threads are here.
#pragma once

#include "base/atomic.h"
#include "space/size_class.h"

// More than a node holds is reserved at the first use, and taken with the refills that follow.
#define PREWARM_BLOCKS_MAX 4096

struct knobs {
    // Blocks that a thread takes in one batch (up to a node's) when it first uses the class, which then has room for
    // as many and is not watched; 0: none. Relaxed, each: set at start and when a thread ends, read when a thread
    // first uses the class. Pairs with nothing.
    _Atomic(uint16_t) prewarm[SIZE_CLASS_COUNT];
};

extern struct knobs knobs;

// As the options say. Before the first cache is made.
void knobs_start(void);

static inline unsigned knobs_prewarm(uint64_t class_index) {
    return atomic_load_relaxed(&knobs.prewarm[class_index]);
}

// `blocks` beyond PREWARM_BLOCKS_MAX count as that.
void knobs_set_prewarm(uint64_t class_index, uint64_t blocks);
