// The file that statistics and leaks are written to at exit. Apart from start.c, whose constructor comes along with all that refers to it.
#pragma once

#include "base/atomic.h"

// It is what standard error leads to at the first call.
void exit_file_keep(void);

// Its descriptor, or -1 where nobody is to read: what is written there is lost.
int exit_file_output(void);

// In the child of a fork.
void exit_file_fork_child(void);

// At a tick. Whoever launches a daemon may read its standard error until nobody can write there any more: a child of a fork that has another file
// in its place keeps a pipe or socket no longer.
void exit_file_leave(void);
// Relaxed: set by the child of a fork, which has one thread; pairs with nothing.
HIDDEN extern _Atomic(bool) exit_file_may_be_left;
static inline void exit_file_tick(void) {
    if (unlikely(atomic_load_relaxed(&exit_file_may_be_left))) {
        exit_file_leave();
    }
}
