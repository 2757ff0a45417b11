#include "control/check.h"

#include "base/atomic.h"
#include "base/check.h"
#include "heap/guarded.h"
#include "heap/heap.h"
#include "heap/heap_check.h"
#include "heap/huge.h"
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
// nothing else. Threads take turns, and after each check none begins for as long as it took three times. A turn that
// is never given back (its thread was lost in a fork) ends by itself.
#define CHECK_PAUSES 3
#define CHECK_TURN_TICKS (64 * OS_TICKS_PACE)

// From when on the next check may begin. Relaxed load and store, acquire CAS: whose turn it is, and no more; pairs with nothing.
static _Atomic(uint64_t) next_check;

size_t check_at_tick(void) {
    const uint64_t begin = os_ticks();
    uint64_t next = atomic_load_relaxed(&next_check);
    if (begin < next || !atomic_cas_acquire(&next_check, &next, begin + CHECK_TURN_TICKS)) {
        return 0;
    }
    const size_t violations = check_all();
    const uint64_t end = os_ticks();
    atomic_store_relaxed(&next_check, end + CHECK_PAUSES * (end - begin));
    return violations;
}
