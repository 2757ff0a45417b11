// Threads come and go; heaps and their caches stay and pass to the next thread, the latest first,
// so that a successor finds warm slabs and nothing is ever lost.
//
// A cache is emptied before it is given back, unless threads of a short life follow one another: then it keeps its
// blocks for the next thread (docs/decisions/0048-threads-of-a-short-life.md). A life is short, and a successor comes
// soon, within OS_TICKS_PACE. Who came soon, lived shortly and has earned nothing beyond its share (capacity.h) leaves its blocks behind where the learner says so,
// as long as all caches that keep some could hold no more than cache_heap_bytes, which is what one thread that sleeps may hold.
// What nobody took within decay_interval_ms goes home with the next ticks of any thread, eight caches each.
//
// A thread gets its cache at its first slow path, and gives it back in the third round of its key
// destructors. What runs in it after that, and a thread for which there was no memory, uses the
// late heap: one for all, under its lock, without magazines.
#pragma once

#include <pthread.h>

#include "thread/cache.h"

// All thread caches. Changed in lifecycle.c alone; snapshots look at its lock.
struct registry {
    struct lock lock;
    bool has_key;
    pthread_key_t exit_key;
    struct thread_cache *unused;  // stack, linked through next_unused
    struct thread_cache *kept;    // the same of those that keep blocks; taken first
    uint64_t kept_bytes;          // capacity_bytes of these
    uint32_t last_id;
    struct thread_cache *abandoned_cursor;  // the cache looked at last for a thread that is gone
    bool
        has_no_options;  // the environment had none when the process started: it is not looked at again
    // Release on publishing a cache under the lock; acquire by whoever walks the list.
    _Atomic(struct thread_cache *) all;
    // Release after the options and the page map are set up; acquire by later callers.
    _Atomic(bool) started;
    // Relaxed: statistics. Pairs with nothing.
    _Atomic(uint32_t) count;
    // Caches that keep blocks. Relaxed: written under the lock; ticks look whether there are any. Pairs with nothing.
    _Atomic(uint32_t) kept_count;
    // What the learner said last. Relaxed: written under the lock, read by threads that end. Pairs with nothing.
    _Atomic(bool) keeps;
};
HIDDEN extern struct registry registry_state;  // for control/inspect.c
HIDDEN extern struct heap late_heap_state;     // the same

// Reads the options and prepares the page map: once, whoever comes first. No lock may be held.
void lifecycle_start(void);

// Whether the calling thread is within that, and a handler of a signal came between: who calls it there waits for itself.
bool lifecycle_is_starting(void);

// lifecycle_start() at the start of the process, if the environment sets an option: true then. Without one all this waits for
// the first use.
bool lifecycle_start_if_asked(void);

// The calling thread's cache, attached if need be; NULL when it has ended or there is no memory:
// the caller then uses the late functions.
struct thread_cache *lifecycle_attach(void);

// The same for a thread that frees; NULL also where it has ended without ever having had one.
struct thread_cache *lifecycle_attach_to_free(void);

// Whether a thread has or had a cache, or may be about to get one: there is a second thread.
bool lifecycle_has_caches(void);

// Whether the process never had a second thread, as far as the C library tells.
bool lifecycle_is_single_threaded(void);

// Called whenever a thread got a cache, in that thread, where somebody defines it. May allocate.
void lifecycle_attached(void) __attribute__((weak));

// Allocation and free without a cache.
void *late_alloc(uint64_t class_index);
// Returns the heap that the block waits at, where too much does: see relief_part(); else NULL.
struct heap *late_free(struct run *slab, void *block);

// All caches there ever were, the newest first; follow next_all.
struct thread_cache *lifecycle_caches(void);

// The heap of those without a cache.
struct heap *late_heap(void);

// Blocks of a size class that forks left in the caches of other threads, for good: the program has freed them.
uint64_t lifecycle_lost_blocks(uint64_t class_index);

uint32_t lifecycle_count(void);
uint32_t lifecycle_count_in_use(void);

// Number of violated invariants of the list of threads.
size_t lifecycle_check(void);

// Gives the calling thread's cache back now (tests, and threads about to end).
void lifecycle_detach(void);

// Brings home what caches without a thread keep: all of it, or what nobody took within decay_interval_ms. No lock may be
// held.
void lifecycle_empty_kept(void);
void lifecycle_empty_overdue(uint64_t now_ms);

// The locks of the registry and of all heaps. In the child, while it has them: caches of threads that it has not are orphans.
void lifecycle_fork_lock(void);
void lifecycle_fork_unlock(void);
void lifecycle_fork_child(void);
