// How long empty runs stay in the arena: a sixteenth of purge_delay_ms at first, and longer where the learner finds that giving
// back so early costs too much (control/policy_memory.h). Rounds before the option's delay is over are early ones: they leave
// superslabs that huge pages may back alone. All functions want the arena's lock.
#pragma once

#include "space/purge_delay.h"

// Zeros at first.
struct runs_delay {
    struct purge_delay learned;
    uint64_t early_ms;  // os_clock_ms_locked() when an early round gave something back
    uint64_t full_ms;   // when the last round that was no early one began, or was over
};

// What it is now; purge_delay_ms with learn=0, and with refault_permille=0, where nothing may have to be brought back.
uint64_t runs_delay_ms(const struct runs_delay *delay);

// A round would begin: what it is. RUNS_ROUND_NONE: an early one, and the learner has just found that it is too early for it.
enum runs_round { RUNS_ROUND_NONE, RUNS_ROUND_EARLY, RUNS_ROUND_FULL };
enum runs_round runs_delay_begin(struct runs_delay *delay, uint64_t now_ms);

// A round is over. One that was no early one may have taken long.
void runs_delay_end(struct runs_delay *delay, bool was_early, uint64_t now_ms);

// An early round has just given so much back.
void runs_delay_purged(struct runs_delay *delay, uint64_t bytes);

// So much comes from the system, that memory given back could have been.
void runs_delay_needed_slow(struct runs_delay *delay, uint64_t bytes);
static inline void runs_delay_needed(struct runs_delay *delay, uint64_t bytes) {
    if (unlikely(delay->learned.refault_bytes < delay->learned.early_bytes) && bytes != 0) {
        runs_delay_needed_slow(delay, bytes);
    }
}
