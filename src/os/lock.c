#include "os/lock.h"

#include "os/os.h"

_Atomic(uintptr_t) lock_fork_owner;  // relaxed: see lock.h

// Tells threads apart without a thread-local variable or a system call.
static uintptr_t thread_pointer(void) {
    uintptr_t pointer;
#if defined(__x86_64__)
    __asm__("mov %%fs:0, %0" : "=r"(pointer));
#elif defined(__aarch64__)
    __asm__("mrs %0, tpidr_el0" : "=r"(pointer));
#endif
    return pointer;
}

void lock_init(struct lock *lock, enum lock_rank rank) {
    atomic_store_relaxed(&lock->state, 0);
    lock->rank = rank;
}

bool lock_passes_for_fork(void) {
    return atomic_load_relaxed(&lock_fork_owner) == thread_pointer();
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
    while (atomic_exchange_acquire(&lock->state, 2) != 0) {
        os_futex_wait(&lock->state, 2);
    }
}

SLOW_PATH void lock_release_slow(struct lock *lock) {
    os_futex_wake_one(&lock->state);
}

void lock_fork_begin(void) {
    atomic_store_relaxed(&lock_fork_owner, thread_pointer());
}

void lock_fork_end(void) {
    atomic_store_relaxed(&lock_fork_owner, 0);
}
