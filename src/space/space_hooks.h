// What this layer and the heaps above it ask the control layer, which stands above them: a pointer for each question, as
// in thread/knobs.h. Without an answer, as in the tests of the lower layers, the static rule holds.
#pragma once

#include "base/atomic.h"
#include "base/base.h"

struct excess;
struct purge_delay;

// A superslab is taken into use, or a huge block takes memory of the system: what it stands among.
struct growth_signals {
    uint64_t used_bytes, resident_bytes;  // of the newest ones without huge pages
    // Of the latest one whose first huge page was slow (HUGE_PAGE_SLOW_NS) since the last look; 0: none was.
    uint64_t touch_ns;
};

// Whether it should ask for huge pages. The lock of whose memory it is, is held.
typedef bool growth_hook(const struct growth_signals *signals);

// So many of the bytes that were given back for being too many are wanted again, or, 0, none were for a while:
// what becomes of excess->raise. The lock of whose `excess` it is, is held.
typedef void refault_hook(struct excess *excess, uint64_t refault_bytes);

// A heap's slabs are looked through by its own thread, for which slab_purge_delay_ms is `most_ms`, or empty runs by
// any thread, for which purge_delay_ms is: what becomes of the delay. The lock of heap or arena is held.
typedef void delay_hook(struct purge_delay *delay, uint64_t most_ms);

struct space_hooks {
    // Relaxed, each: NULL until the library's constructor sets them (control/learner.c), while threads of others' may
    // run already; they follow then. Pairs with nothing.
    _Atomic(growth_hook *) growth;
    _Atomic(growth_hook *) block_growth;
    _Atomic(refault_hook *) refault;
    _Atomic(delay_hook *) delay;
    _Atomic(delay_hook *) runs_delay;
};
HIDDEN extern struct space_hooks space_hooks;
