// The file that statistics and leaks are written to at exit. Apart from start.c, whose constructor comes along with all that refers to it.
#pragma once

#include "base/atomic.h"

// It is what standard error leads to at the first call.
void exit_file_keep(void);

// Its descriptor, or -1 where nobody is to read: what is written there is lost.
int exit_file_output(void);

// Whoever launches a daemon may read its standard error until nobody can write there any more: the child of a fork that has another file in
// its place gives a pipe or socket up at its next tick. One that has closed it keeps what it may want at its end.
enum exit_file_reader { EXIT_FILE_NOT_AWAITED, EXIT_FILE_AWAITED, EXIT_FILE_INHERITED };
// Relaxed: set where a file is kept, by the child of a fork, which has one thread, and by who gives it up; a tick earlier or later. Pairs
// with nothing.
HIDDEN extern _Atomic(uint8_t) exit_file_reader;

static inline void exit_file_fork_child(void) {
    if (unlikely(atomic_load_relaxed(&exit_file_reader) == EXIT_FILE_AWAITED)) {
        atomic_store_relaxed(&exit_file_reader, EXIT_FILE_INHERITED);
    }
}

void exit_file_give_up(void);
static inline void exit_file_tick(void) {
    if (unlikely(atomic_load_relaxed(&exit_file_reader) == EXIT_FILE_INHERITED)) {
        exit_file_give_up();
    }
}
