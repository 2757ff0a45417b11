#include "thread/knobs.h"

#include "base/bits.h"
#include "config/options.h"

struct knobs knobs;

void knobs_set_prewarm(uint64_t class_index, uint64_t blocks) {
    atomic_store_relaxed(&knobs.prewarm[class_index],
                         (uint16_t)least_u64(blocks, PREWARM_BLOCKS_MAX));
}

void knobs_start(void) {
    if (options.prewarm == 0) {
        return;
    }
    for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        knobs_set_prewarm(i, options.prewarm);
    }
}
