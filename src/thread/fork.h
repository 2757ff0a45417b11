// What pthread_atfork is given: see fork.c.
#pragma once

#include "base/atomic.h"
#include "os/lock.h"
#include "os/os.h"

// Held while a handler of fork is registered: the C library allocates under a lock of its own there, which its fork takes
// again behind fork_prepare().
HIDDEN extern struct lock fork_handlers_lock;

// The thread that registers one, or 0. What the list of handlers has outgrown is not freed meanwhile: glibc's fork, from 2.36 on, reads
// from there once more behind the lock that it gives up. Relaxed: a thread only looks for itself. Pairs with nothing.
HIDDEN extern _Atomic(uintptr_t) fork_registrar;
static inline bool fork_is_registering(void) {
    const uintptr_t registrar = atomic_load_relaxed(&fork_registrar);
    return unlikely(registrar != 0) && registrar == os_thread_pointer();
}

void fork_prepare(void);
void fork_parent(void);
// True: the parent had other threads.
bool fork_child(void);
