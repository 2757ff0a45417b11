// A lock on one word of four bytes, which sleeps in the kernel when contended (Drepper, "Futexes Are Tricky",
// 2011, mutex 2), with a rank: a thread takes locks in rising rank only.
//
// Rank order: fork handlers < huge < registry < heap < guarded < arena < page map < metadata. Two heap locks are held
// together only by fork, which holds the registry's and takes all of them in its order, and where a thread
// that holds its own heap's tries, never waits for, another's (thread/migration.c). Builds with
// internal checks abort where a thread waits for a lock out of rank, and where one is given back that nobody holds.
//
// fork: the forking thread holds every lock while other fork handlers may still allocate in it.
// While `lock_fork_owner` is set, that one thread passes through locks it already holds.
#pragma once

#include "base/atomic.h"
#include "base/base.h"
#include "os/os.h"
#include "os/sharing.h"
#include "os/streams.h"

enum lock_rank {
    // Held while the C library registers a handler of fork, for which it may allocate.
    LOCK_RANK_FORK_HANDLERS = 1,
    // A fork waits with it for other threads' system calls, so before it has any of those that follow.
    LOCK_RANK_HUGE,
    LOCK_RANK_REGISTRY,
    LOCK_RANK_HEAP,
    LOCK_RANK_GUARDED,
    LOCK_RANK_ARENA,
    LOCK_RANK_PAGE_MAP,
    LOCK_RANK_METADATA,
    LOCK_RANK_COUNT,
};

struct lock {
    // 0 free, 1 held, 2 held and somebody sleeps. Acquire on taking pairs with the release of the
    // previous holder's lock_release().
    _Atomic(uint32_t) state;
    // Times the lock was given back, modulo 2^32: written by the holder alone. A reader outside of the process
    // that finds the lock free, before and after it looked, and this number the same, saw what nobody changed
    // (docs/INSPECT_ABI.md). Next to `state`, so that one copy of 8 bytes has both.
    uint32_t generation;
    uint32_t rank;
    // lock_thread_mark() of the holder, 0 while there is none. Relaxed: who finds its own mark in it wrote that. Written by the
    // holder, and by a thread that goes through while it ends the process. Pairs with nothing.
    _Atomic(uint32_t) holder;
    SHARING_LOCK_FIELD
};

#define LOCK_INITIAL(lock_rank) \
    { .rank = (lock_rank) }

// The thread pointer of the thread that is inside fork, else 0.
// Relaxed: only that thread compares it equal to its own, and it wrote it itself.
HIDDEN extern _Atomic(uintptr_t) lock_fork_owner;

void lock_init(struct lock *lock, enum lock_rank rank);
void lock_acquire_slow(struct lock *lock);
void lock_release_slow(struct lock *lock);
bool lock_passes_for_fork(void);
bool lock_may_be_mine_slow(const struct lock *lock);

// Internal checks: the ranks that the calling thread holds.
void lock_check_rank(const struct lock *lock);
void lock_note_held(const struct lock *lock);
void lock_note_released(const struct lock *lock);

// 32 bits of the thread pointer, which is a multiple of 16 (x86-64: 64): the same for two threads only where these lie a
// multiple of 64 GiB apart.
static inline uint32_t lock_thread_mark(void) {
    return (uint32_t)(os_thread_pointer() >> 4);
}

// Whether the calling thread holds it: what a handler of a signal interrupted, for one. Not told of one that it was about to take or
// had all but given back.
static inline bool lock_is_mine(const struct lock *lock) {
    return atomic_load_relaxed(&((struct lock *)(uintptr_t)lock)->holder) == lock_thread_mark();
}

// Told of these as well: such a lock is held, and by nobody for longer than that takes others. For who can wait for a moment.
static inline bool lock_may_be_mine(const struct lock *lock) {
    return unlikely(atomic_load_relaxed(&((struct lock *)(uintptr_t)lock)->state) != 0) &&
           lock_may_be_mine_slow(lock);
}

// As os_futex_wait(), for what another thread does under a lock, or before it gives one back. That may be one that ends the process,
// which never gives back what it has of the heap's locks, and whose handler of SIGABRT may wait for the C library's list of streams
// (exit(), fflush(NULL)). So a fork that has the list wakes early to look, and gives it back then; the C library's fork takes it again.
void lock_sleep_with_streams(_Atomic(uint32_t) *word, uint32_t expected);
static inline void lock_sleep(_Atomic(uint32_t) *word, uint32_t expected) {
    if (streams_are_mine()) {
        lock_sleep_with_streams(word, expected);
    } else {
        os_futex_wait(word, expected);
    }
}

FAST_PATH void lock_note_taken(struct lock *lock) {
    atomic_store_relaxed(&lock->holder, lock_thread_mark());
    if (HAKMEM_CHECKS) {
        lock_note_held(lock);
    }
}

FAST_PATH void lock_acquire(struct lock *lock) {
    if (HAKMEM_CHECKS) {
        lock_check_rank(lock);
    }
    uint32_t expected = 0;
    if (unlikely(!atomic_cas_acquire(&lock->state, &expected, 1))) {
        SHARING_LOCK_EVENT(lock, found_held);
        lock_acquire_slow(lock);
    }
    SHARING_LOCK_TAKEN(lock, taken);
    lock_note_taken(lock);
}

// Never sleeps. False also while fork is under way in this thread.
static inline bool lock_try_acquire(struct lock *lock) {
    uint32_t expected = 0;
    const bool taken = atomic_cas_acquire(&lock->state, &expected, 1);
    SHARING_LOCK_TRIED(lock, taken);
    if (taken) {
        lock_note_taken(lock);
    }
    return taken;
}

static inline void lock_release(struct lock *lock) {
    if (unlikely(atomic_load_relaxed(&lock_fork_owner) != 0)) {
        if (lock_passes_for_fork()) {
            return;
        }
    }
    if (HAKMEM_CHECKS) {
        lock_note_released(lock);
    }
    SHARING_LOCK_RELEASED(lock);
    lock->generation++;
    atomic_store_relaxed(&lock->holder, 0);
    if (unlikely(atomic_exchange_release(&lock->state, 0) == 2)) {
        lock_release_slow(lock);
    }
}

// This thread ends the process, and a handler of SIGABRT must not hang: from now on it goes through the locks that it holds
// itself, and waits for no other for more than a second. What it went through it gives back: others then find a heap in the midst
// of a change, but do not hang. False when it said so before, or too many others did.
bool lock_abort_begin(void);

// This thread ends, and not the process: its handler was left by siglongjmp. The next thread may have its thread pointer.
void lock_abort_end(void);

// Whether this thread has said so.
bool lock_is_aborting(void);

// Whether another one has.
bool lock_others_abort(void);

// Of those that said so only the calling thread is left: the process is the child of a fork.
void lock_abort_fork_child(void);

// fork only, by the thread that is forking.
void lock_fork_begin(void);
void lock_fork_end(void);
