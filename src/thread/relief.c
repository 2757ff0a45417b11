#include "thread/relief.h"

#include "config/options.h"
#include "heap/heap_purge.h"
#include "os/events.h"

// What an earlier visit had no budget for goes first: collecting purges the free pages of sparse slabs, and empty ones
// are better given up whole.
void relief_give_back(struct heap *heap, bool keeps_retained) {
    heap_release_empty(heap, keeps_retained);
    heap_collect(heap);
    heap_release_empty(heap, keeps_retained);
    if (heap_has_more(heap)) {
        heap_wait_with_rest(heap);
    }
    heap_count(heap, COUNTER_harvests, 1);
    event_record(EVENT_harvest, heap->id, 0);
}

// The lock is held. False when that was all, or nothing of it could be given back.
static bool give_back_part(struct heap *heap, size_t budget_bytes) {
    heap->budget_bytes = budget_bytes;
    const uint64_t loose_bytes = heap->loose_bytes;
    relief_give_back(heap, true);
    heap->wants_visit = heap_has_more(heap);
    const bool goes_on = heap->wants_visit && heap->loose_bytes != loose_bytes;
    heap->budget_bytes = HEAP_BUDGET_ALL;
    return goes_on;
}

bool relief_part(struct heap *heap, size_t budget_bytes) {
    if (!lock_try_acquire(&heap->lock)) {
        return true;  // whoever has it may collect, or the next slow path does
    }
    const bool goes_on = give_back_part(heap, budget_bytes);
    lock_release(&heap->lock);
    return goes_on;
}

// Of the empty slabs that a collect left in the thread's own heap; what it keeps for its next blocks stays.
static bool relieve_own(struct heap *heap) {
    lock_acquire(&heap->lock);
    heap->budget_bytes = HEAP_BUDGET_CALL;
    heap_release_unkept(heap);
    const bool goes_on = heap->budget_bytes == 0;
    heap->budget_bytes = HEAP_BUDGET_ALL;
    lock_release(&heap->lock);
    return goes_on;
}

void relief_overfull(struct thread_cache *cache) {
    struct heap *heap = cache->heap.overfull;
    if (!(heap == &cache->heap ? relieve_own(heap) : relief_part(heap, HEAP_BUDGET_CALL))) {
        cache->heap.overfull = NULL;
    }
}

// No slow path follows that would try again: who ends waits for others that end at the same moment, or fork. Not for one that ends the
// process, which keeps what it has.
static bool lock_at_end(struct heap *heap) {
    if (unlikely(lock_others_abort())) {
        return lock_try_acquire(&heap->lock);
    }
    lock_acquire(&heap->lock);
    return true;
}

static bool relieve_at_end(const struct heap *own, struct heap *heap) {
    if (heap == own) {
        return relieve_own(heap);
    }
    if (!lock_at_end(heap)) {
        return false;
    }
    const bool goes_on = give_back_part(heap, HEAP_BUDGET_CALL);
    lock_release(&heap->lock);
    return goes_on;
}

void relief_at_end(struct thread_cache *cache, uint64_t sent_bytes) {
    const uint64_t parts = 1 + 2 * sent_bytes / HEAP_BUDGET_CALL;
    for (uint64_t i = 0; i < parts && cache->heap.overfull != NULL; i++) {
        if (!relieve_at_end(&cache->heap, cache->heap.overfull)) {
            cache->heap.overfull = NULL;
        }
    }
}
