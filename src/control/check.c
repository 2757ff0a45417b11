#include "base/check.h"

#include "control/stats.h"
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
