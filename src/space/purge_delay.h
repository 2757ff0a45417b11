// How long free memory stays before it goes back, where that is learned: of each heap for the pages inside its slabs, and once
// for all empty runs. It begins with a part of what the option says; the policy (control/policy_memory.h) makes it longer where what
// went so early was wanted again and that cost too much.
#pragma once

#include "base/base.h"
#include "base/bits.h"
#include "config/options.h"

// The shortest delay, as a part of the option's: of slab_purge_delay_ms, and of purge_delay_ms. An empty run costs more to
// bring back than some pages of a slab (docs/decisions/0081-how-long-empty-runs-stay.md).
#define PURGE_EARLY_PART 64
#define RUNS_EARLY_PART 16

// Zeros at first. What is purged and wanted again is added as it happens, the rest is the policy's.
struct purge_delay {
    uint64_t early_bytes;  // purged before the option's delay was over, and not wanted again so far
    uint64_t refault_bytes;  // of these, wanted again since the last round
    // Processor time, of the heap's thread or of the process, at the last round before which some was; 0: none since the heap
    // has its thread.
    uint64_t asked_cpu_ns;
    uint32_t ms;           // 0: nothing was decided yet, the shortest
    uint16_t calm_rounds;  // rounds to come until it is shortened again
    uint16_t calm_length;  // how many these were the last time
    // Rounds after which most of little was wanted again, less those after which other than that was.
    uint16_t vain_rounds;
};

static inline uint64_t purge_delay_learned_ms(const struct purge_delay *delay, unsigned early_part,
                                              uint64_t most_ms) {
    return delay->ms == 0 ? least_u64(greatest_u64(most_ms / early_part, 1), most_ms) : delay->ms;
}

// What may be brought back that was given back early, of a thread or a process that had a processor for so long. A page that
// goes and is faulted in again takes 1.8 microseconds (docs/decisions/0055-a-bound-that-begins-low.md): a nanosecond for two bytes.
#define REFAULT_BYTES_PER_NS 2

static inline uint64_t refault_bytes_affordable(uint64_t cpu_ns) {
    return cpu_ns / (1000 / REFAULT_BYTES_PER_NS) * option_live(refault_permille);
}
