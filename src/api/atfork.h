// Where the handlers of fork are registered. Before a fork they run in the opposite order: this library's must be the
// first registered of all, because from then on they hold the heap's locks, and another library's may wait for a
// thread that allocates.
#pragma once

#include <pthread.h>

#if defined(__GLIBC__)
// What pthread_atfork is there, which is itself a piece of every library. The handle is that of the library whose
// unloading takes the handlers away.
int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
                      void *handle);

// The C library's own, behind the one that the shared library has in front of it; NULL: there is none. Itself NULL in
// the archive (atfork.c).
__typeof__(__register_atfork) *hakmem_atfork_next(void) __attribute__((weak));
#endif

// Registers this library's handlers, unless they are.
void start_watch_forks(void);
