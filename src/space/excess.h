// How much free memory may stay resident, decided where memory is freed: a program that stops calling malloc
// and free after a spike has nobody else to give it back.
//
// The bound is the larger of a fixed number of bytes and an eighth of what is in use, of the latter no more than eight times
// excess_bytes. Memory that was given back and
// is wanted again within purge_delay_ms is told to the learner, which may raise the bound (control/policy_memory.h): so a
// single spike goes at once, in portions that shrink with what is left in use; a program whose demand comes in waves
// pays for the first ones, then keeps what a wave needs. Each user has its own lock. Empty runs and the slabs of a heap share a
// part of what each may keep by itself (trim_runs, heap/heap_purge.c).
#pragma once

#include "base/base.h"

// What the learner made of the bound; zeros at first. Only the policy changes it.
struct excess_raise {
    uint64_t bytes;        // the raised bound; 0: it is not raised
    uint64_t start_bytes;  // the bound before it was
    uint64_t noted_bytes;  // the bound as the decision log has it
};

struct excess {
    uint64_t dropped_bytes;  // given back for being too much, and not wanted again so far
    uint64_t dropped_ms;     // when that was last
    uint64_t bound_bytes;    // the bound at that time
    struct excess_raise raise;
    uint64_t accepted_bytes;  // what stays beyond it, since it cannot be given back at once
};

// Beyond the bound memory goes until this part of it is left, in parts: those of slabs go on below the bound, a free of runs gives
// one part back, and the next beyond the bound another.
static inline uint64_t excess_rest(uint64_t bound_bytes) {
    return bound_bytes / 2;
}

// How many bytes may stay, resident and free beside `used_bytes`; `least_bytes` always.
uint64_t excess_bound(const struct excess *excess, uint64_t used_bytes, uint64_t least_bytes);

// So much was given back because it was above the bound.
void excess_dropped(struct excess *excess, uint64_t bytes, uint64_t bound_bytes);

// So much stays though it is above the bound, since nothing of it can be given back at once: until there is an eighth
// more it is not looked for again at every free.
static inline void excess_accept(struct excess *excess, uint64_t bytes) {
    excess->accepted_bytes = bytes + bytes / 8;
}

// Whether so much is more than may stay.
static inline bool excess_is_over(const struct excess *excess, uint64_t bytes,
                                  uint64_t bound_bytes) {
    return unlikely(bytes > bound_bytes) && bytes > excess->accepted_bytes;
}

// So much comes from the system, that memory given back could have been.
void excess_needed_slow(struct excess *excess, uint64_t bytes);
static inline void excess_needed(struct excess *excess, uint64_t bytes) {
    if (unlikely(excess->dropped_bytes != 0)) {
        excess_needed_slow(excess, bytes);
    }
}

// Called now and then, while the program does something: waves do not come for ever.
void excess_decay(struct excess *excess);
