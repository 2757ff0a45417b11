// What happens to locks, in builds with HAKMEM_COUNT_SHARING: see base/sharing.h. The process writes all
// counts as one line of JSON to standard error when it exits.
#pragma once

#include "base/base.h"
#include "base/sharing.h"

#if defined(HAKMEM_COUNT_SHARING)

// Of the locks of one rank.
struct sharing_locks {
    uint64_t taken;           // by lock_acquire()
    uint64_t found_held;      // those of them that had to wait
    uint64_t slept, woke;     // waits in the kernel, and wake-ups by who released
    uint64_t tried, refused;  // by lock_try_acquire()
    // Time between taking and releasing, in os_ticks(): the number of bits of each, its holder's sleep included.
    uint64_t held_by_bits[65];
};
// By rank (os/lock.h, which includes this file).
#define SHARING_RANKS_MAX 16
HIDDEN extern struct sharing_locks sharing_locks[SHARING_RANKS_MAX];

void sharing_lock_taken(uint64_t *taken_ticks);
void sharing_lock_released(uint32_t rank, uint64_t taken_ticks);

#define SHARING_LOCK_FIELD uint64_t taken_ticks;
#define SHARING_LOCK_EVENT(lock, event) sharing_count(&sharing_locks[(lock)->rank].event)
#define SHARING_LOCK_TAKEN(lock, event) \
    (SHARING_LOCK_EVENT(lock, event), sharing_lock_taken(&(lock)->taken_ticks))
#define SHARING_LOCK_TRIED(lock, is_taken) \
    ((is_taken) ? SHARING_LOCK_TAKEN(lock, tried) : SHARING_LOCK_EVENT(lock, refused))
#define SHARING_LOCK_RELEASED(lock) sharing_lock_released((lock)->rank, (lock)->taken_ticks)

#else

#define SHARING_LOCK_FIELD
#define SHARING_LOCK_EVENT(lock, event) ((void)0)
#define SHARING_LOCK_TAKEN(lock, event) ((void)0)
#define SHARING_LOCK_TRIED(lock, is_taken) ((void)0)
#define SHARING_LOCK_RELEASED(lock) ((void)0)

#endif
