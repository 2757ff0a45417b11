#include "os/lock.h"

#include "os/file.h"
#include "os/os.h"

_Atomic(uintptr_t) lock_fork_owner;  // relaxed: see lock.h

// Threads that end the process may be several; those beyond so many at once end it without a handler.
#define ABORTING_MOST 8

// Their thread pointers, and their number. Relaxed, and acquire where that is all there is: a thread only looks for its own, which it
// wrote itself; pairs with nothing.
static _Atomic(uintptr_t) aborting[ABORTING_MOST];
static _Atomic(uint32_t) aborting_count;

void lock_init(struct lock *lock, enum lock_rank rank) {
    atomic_store_relaxed(&lock->state, 0);
    atomic_store_relaxed(&lock->holder, 0);
    lock->rank = rank;
}

bool lock_passes_for_fork(void) {
    return atomic_load_relaxed(&lock_fork_owner) == os_thread_pointer();
}

bool lock_is_aborting(void) {
    for (unsigned i = 0; i < ABORTING_MOST; i++) {
        if (atomic_load_relaxed(&aborting[i]) == os_thread_pointer()) {
            return true;
        }
    }
    return false;
}

bool lock_others_abort(void) {
    return atomic_load_relaxed(&aborting_count) != 0 && !lock_is_aborting();
}

// Another holder lets go within microseconds of its own time. One that does not is ending the process as well, forking, or kept
// from running.
#define ABORT_WAIT_MS 1000
// Where a filter refuses the clock.
#define ABORT_YIELDS_MOST 10000000

// A thread that noticed misuse under a lock holds it and will never go on from there.
static void wait_while_aborting(struct lock *lock) {
    if (lock_is_mine(lock)) {
        return;
    }
    const uint64_t begin = os_clock_ms_locked();
    for (uint32_t yields = 0;
         atomic_exchange_acquire(&lock->state, 2) != 0 &&
         os_clock_ms_locked() - begin < ABORT_WAIT_MS && yields < ABORT_YIELDS_MOST;
         yields++) {
        os_yield();
    }
}

// Another thread is between the two words of a lock for some instructions, or until it runs again.
#define MOMENT_YIELDS 1000

SLOW_PATH bool lock_may_be_mine_slow(const struct lock *lock) {
    struct lock *words = (struct lock *)(uintptr_t)lock;
    for (unsigned yields = 0; yields < MOMENT_YIELDS; yields++) {
        if (atomic_load_relaxed(&words->state) == 0 || atomic_load_relaxed(&words->holder) != 0) {
            return lock_is_mine(lock);
        }
        os_yield();
    }
    return true;
}

// Nobody wakes it for what it looks for: who ends the process does not know where a fork sleeps, or is about to.
#define LOOK_MS 10

SLOW_PATH void lock_sleep_with_streams(_Atomic(uint32_t) *word, uint32_t expected) {
    if (!lock_others_abort()) {
        os_futex_wait_ms(word, expected, LOOK_MS);
        return;
    }
    while (streams_are_mine()) {
        streams_fork_unlock();
    }
}

SLOW_PATH void lock_acquire_slow(struct lock *lock) {
    if (lock_passes_for_fork()) {
        return;
    }
    // A holder keeps a lock for about a microsecond; a short wait saves two system calls.
    for (int spin = 0; spin < 100; spin++) {
        uint32_t expected = 0;
        if (atomic_load_relaxed(&lock->state) == 0 &&
            atomic_cas_acquire(&lock->state, &expected, 1)) {
            return;
        }
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    if (lock_is_aborting()) {
        wait_while_aborting(lock);
        return;
    }
    while (atomic_exchange_acquire(&lock->state, 2) != 0) {
        SHARING_LOCK_EVENT(lock, slept);
        lock_sleep(&lock->state, 2);
    }
}

SLOW_PATH void lock_release_slow(struct lock *lock) {
    SHARING_LOCK_EVENT(lock, woke);
    os_futex_wake_one(&lock->state);
}

// How many locks of each rank this thread holds; a build without checks does not have it. While a
// fork is under way nothing is noted: locks are passed through, and all are released at its end. Nor
// while the thread ends the process.
#define NOTES_WANTED (HAKMEM_CHECKS && !lock_passes_for_fork() && !lock_is_aborting())
static __thread uint32_t held[LOCK_RANK_COUNT] __attribute__((tls_model("initial-exec")));

void lock_check_rank(const struct lock *lock) {
    if (!NOTES_WANTED) {
        return;
    }
    for (uint32_t rank = lock->rank; rank < LOCK_RANK_COUNT; rank++) {
        const bool all_heaps =
            rank == LOCK_RANK_HEAP && lock->rank == rank && held[LOCK_RANK_REGISTRY] != 0;
        if (held[rank] != 0 && !all_heaps) {
            static const char message[] = "hakmem: check: a lock is waited for out of rank\n";
            os_write(2, message, sizeof message - 1);
            os_abort();
        }
    }
}

void lock_note_held(const struct lock *lock) {
    if (NOTES_WANTED) {
        held[lock->rank]++;
    }
}

void lock_note_released(const struct lock *lock) {
    if (!NOTES_WANTED) {
        return;
    }
    // A thread that ends the process gives back what it went through.
    if (atomic_load_relaxed(&((struct lock *)(uintptr_t)lock)->state) == 0 &&
        !lock_others_abort()) {
        static const char message[] = "hakmem: check: a lock is given back that nobody holds\n";
        os_write(2, message, sizeof message - 1);
        os_abort();
    }
    // A lock made while the fork was under way was not noted.
    if (held[lock->rank] != 0) {
        held[lock->rank]--;
    }
}

bool lock_abort_begin(void) {
    if (lock_is_aborting()) {
        return false;
    }
    for (unsigned i = 0; i < ABORTING_MOST; i++) {
        uintptr_t none = 0;
        if (atomic_cas_acquire(&aborting[i], &none, os_thread_pointer())) {
            atomic_add_relaxed(&aborting_count, 1);
            return true;
        }
    }
    return false;
}

void lock_abort_end(void) {
    if (likely(atomic_load_relaxed(&aborting_count) == 0)) {
        return;
    }
    for (unsigned i = 0; i < ABORTING_MOST; i++) {
        if (atomic_load_relaxed(&aborting[i]) == os_thread_pointer()) {
            atomic_store_relaxed(&aborting[i], 0);
            atomic_sub_relaxed(&aborting_count, 1);
        }
    }
}

void lock_abort_fork_child(void) {
    const bool is_aborting = lock_is_aborting();
    for (unsigned i = 0; i < ABORTING_MOST; i++) {
        atomic_store_relaxed(&aborting[i], 0);
    }
    atomic_store_relaxed(&aborting[0], is_aborting ? os_thread_pointer() : 0);
    atomic_store_relaxed(&aborting_count, is_aborting);
}

void lock_fork_begin(void) {
    atomic_store_relaxed(&lock_fork_owner, os_thread_pointer());
}

void lock_fork_end(void) {
    atomic_store_relaxed(&lock_fork_owner, 0);
}
