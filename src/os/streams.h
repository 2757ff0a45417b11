// The C library's list of streams, as fork takes it. Of glibc: where there is none of this, nothing is taken.
//
// glibc's fork takes its lock once all handlers have run, and threads allocate under it, or wait under it for a stream in which another
// one allocates. So it comes before all locks of the heap (thread/fork.c).
#pragma once

#include "base/atomic.h"
#include "base/base.h"
#include "os/os.h"

// The thread that has it for a fork, or 0. Relaxed: changed under it, and a thread only looks for itself, which it wrote itself.
// Pairs with nothing.
HIDDEN extern _Atomic(uintptr_t) streams_owner;

static inline bool streams_are_mine(void) {
    return unlikely(atomic_load_relaxed(&streams_owner) == os_thread_pointer());
}

// By the thread that forks, which may do so once more in a handler.
void streams_fork_lock(void);
// Once, if it still has it.
void streams_fork_unlock(void);
// In the child. glibc makes it anew as well, where it knew of a second thread before all handlers.
void streams_fork_child(void);
