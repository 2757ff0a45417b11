// Threads come and go; heaps and their caches stay and pass to the next thread, the latest first,
// so that a successor finds warm slabs and nothing is ever lost.
//
// A thread gets its cache at its first slow path and gives it back in the last round of its key
// destructors. What runs in it after that, and a thread for which there was no memory, uses the
// late heap: one for all, under its lock, without magazines.
#pragma once

#include <pthread.h>

#include "thread/cache.h"

// All thread caches. Used in lifecycle.c alone.
struct registry {
    struct lock lock;
    bool has_key;
    pthread_key_t exit_key;
    struct thread_cache *unused;  // stack, linked through next_unused
    uint32_t last_id;
    bool
        has_no_options;  // the environment had none when the process started: it is not looked at again
    void (*on_first_attach)(void);  // NULL when nobody waits for it
    // Release on publishing a cache under the lock; acquire by whoever walks the list.
    _Atomic(struct thread_cache *) all;
    // Release after the options and the page map are set up; acquire by later callers.
    _Atomic(bool) started;
    // Relaxed: statistics. Pairs with nothing.
    _Atomic(uint32_t) count;
};
extern struct registry registry_state;  // for control/inspect.c
extern struct heap late_heap_state;     // the same

// Reads the options and prepares the page map: once, whoever comes first. No lock may be held.
void lifecycle_start(void);

// The same at the start of the process, if the environment sets an option: true then. Without one all this waits for
// the first use.
bool lifecycle_start_if_asked(void);

// The calling thread's cache, attached if need be; NULL when it has ended or there is no memory:
// the caller then uses the late functions.
struct thread_cache *lifecycle_attach(void);

// Calls the function once a thread has a cache: now if there is one or a second thread, else when the first gets it, in
// that thread. To be called once.
void lifecycle_when_attached(void (*function)(void));

// Allocation and free without a cache.
void *late_alloc(uint64_t class_index);
void late_free(struct run *slab, void *block);

// All caches there ever were, the newest first; follow next_all.
struct thread_cache *lifecycle_caches(void);

// The heap of those without a cache.
struct heap *late_heap(void);

uint32_t lifecycle_count(void);
uint32_t lifecycle_count_in_use(void);

// Number of violated invariants of the list of threads.
size_t lifecycle_check(void);

// Gives the calling thread's cache back now (tests, and threads about to end).
void lifecycle_detach(void);
