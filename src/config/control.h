// What a reader outside of the process may ask for, by writing here through /proc/PID/mem (`hakmem set`): states, not
// commands, so that writing twice does no harm and nothing is lost. Threads look at their ticks, slow paths at
// `events`; a thread that takes no slow path follows when it takes one.
#pragma once

#include "base/atomic.h"
#include "base/base.h"

struct control {
    // Relaxed, each: a state that stands alone; written by a process that no memory order reaches. Pairs with nothing.
    _Atomic(uint32_t) events;  // 1: events of kind ASKED wanted
    // They differ: what hakmem_trim gives back is wanted, and not given back yet. Relaxed, and pairs with nothing.
    _Atomic(uint32_t) purge_wanted, purge_done;
    // Which file descriptor 2 led to when a reader turned an option on that tells something at the end: by the end it may be a file of the
    // program's own. All 0: nobody told. Relaxed, and pairs with nothing.
    _Atomic(uint64_t) output_device, output_number, output_special_device;
};

HIDDEN extern struct control control;
