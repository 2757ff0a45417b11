#include "control/check.h"

#include "base/atomic.h"
#include "base/check.h"
#include "heap/guarded.h"
#include "heap/heap.h"
#include "heap/heap_check.h"
#include "heap/huge.h"
#include "os/file.h"
#include "os/pause.h"
#include "space/arena.h"
#include "space/metadata.h"
#include "thread/lifecycle.h"

static size_t check_heap(struct heap *heap) {
    lock_acquire(&heap->lock);
    const size_t violations = heap_check(heap);
    lock_release(&heap->lock);
    return violations;
}

size_t check_all(void) {
    lifecycle_start();
    check_begin();
    size_t violations = lifecycle_check() + check_heap(late_heap());
    for (struct thread_cache *cache = lifecycle_caches(); cache != NULL; cache = cache->next_all) {
        violations += check_heap(&cache->heap);
    }
    if (cache_is_real(thread_cache)) {
        violations += cache_check(thread_cache);
    }
    violations += arena_check() + huge_check() + guarded_check() + metadata_check();
    check_end();
    return violations;
}

// A check of a large heap takes longer than the time between two ticks, which each thread has: all of them would do
// nothing else. Threads take turns, and after each check none begins for as long as it took three times.
#define CHECK_PAUSES 3
static struct pause check_pause;

// Whose turn it is: thread and process; 0: nobody's. Acquire CAS, release store: who has the turn finds the pause that the one before began.
static _Atomic(uint64_t) checker;

// A fork takes along the turn of a thread that the child does not have. It may also be by a handler that interrupted the check of its own thread.
static bool is_lost(uint64_t turn, uint64_t own) {
    return (uint32_t)turn != (uint32_t)own && turn >> 32 != own >> 32;
}

static bool take_turn(void) {
    const uint64_t own = (uint64_t)lock_thread_mark() << 32 | (uint32_t)os_process_id();
    uint64_t turn = atomic_load_relaxed(&checker);
    return (turn == 0 || is_lost(turn, own)) && atomic_cas_acquire(&checker, &turn, own);
}

size_t check_at_tick(void) {
    if (!pause_is_over(&check_pause) || !take_turn()) {
        return 0;
    }
    size_t violations = 0;
    // The turn may have been another's meanwhile.
    if (pause_is_over(&check_pause)) {
        const uint64_t begin_ticks = os_ticks();
        violations = check_all();
        pause_begin(&check_pause, begin_ticks, CHECK_PAUSES, 0, UINT64_MAX);
    }
    atomic_store_release(&checker, 0);
    return violations;
}
