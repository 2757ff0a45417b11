#include "thread/maintenance.h"

#include "config/options.h"
#include "heap/huge.h"
#include "os/os.h"
#include "thread/lifecycle.h"

// A heap whose thread took no slow path between two visits is idle: its remote frees are collected,
// its empty slabs released, its sparse slabs purged. One heap a tick, in turn.
// Relaxed: a cursor that any thread moves; two threads at one heap do no harm. Pairs with nothing.
static _Atomic(struct thread_cache *) harvest_cursor;

static void harvest(struct heap *heap, unsigned keep) {
    heap_collect(heap);
    heap_release_empty(heap, keep);
    heap_purge_slabs(heap);
    heap_count(heap, COUNTER_harvests, 1);
}

static void harvest_next(const struct thread_cache *own) {
    struct thread_cache *cache = atomic_load_relaxed(&harvest_cursor);
    cache = cache == NULL || cache->next_all == NULL ? lifecycle_caches() : cache->next_all;
    atomic_store_relaxed(&harvest_cursor, cache);
    if (cache == own || cache == NULL || !lock_try_acquire(&cache->heap.lock)) {
        return;
    }
    const uint32_t activity = atomic_load_relaxed(&cache->activity);
    if (activity == cache->activity_seen) {
        harvest(&cache->heap, 0);
    }
    cache->activity_seen = activity;
    lock_release(&cache->heap.lock);
}

static void purge_due(uint64_t now_ms) {
    if (now_ms >= arena_purge_due()) {
        count_event(COUNTER_purged_bytes, arena_purge(now_ms, false));
    }
    if (huge_has_kept()) {
        huge_purge(now_ms, false);
    }
}

static void look_at_clock(struct thread_cache *cache) {
    const uint64_t now_ms = os_clock_ms();
    heap_count(&cache->heap, COUNTER_ticks, 1);
    cache_publish_remote(cache);
    if (now_ms - cache->decay_ms >= option_live(decay_interval_ms)) {
        cache->decay_ms = now_ms;
        cache_decay(cache);
    }
    if (now_ms - cache->slab_purge_ms >= option_live(slab_purge_delay_ms)) {
        // The first look only starts the clock.
        if (cache->slab_purge_ms != 0) {
            lock_acquire(&cache->heap.lock);
            heap_collect(&cache->heap);
            heap_purge_slabs(&cache->heap);
            lock_release(&cache->heap.lock);
        }
        cache->slab_purge_ms = now_ms;
    }
    harvest_next(cache);
    purge_due(now_ms);
}

bool maintenance_tick(struct thread_cache *cache) {
    const uint64_t ticks = os_ticks();
    if (likely(ticks - cache->pace_ticks < OS_TICKS_PACE)) {
        return false;
    }
    cache->pace_ticks = ticks;
    look_at_clock(cache);
    return true;
}

size_t maintenance_reclaim(void) {
    struct thread_cache *own = thread_cache;
    if (cache_is_real(own) && !own->checked) {
        cache_empty(own);
    }
    for (struct thread_cache *cache = lifecycle_caches(); cache != NULL; cache = cache->next_all) {
        if (lock_try_acquire(&cache->heap.lock)) {
            harvest(&cache->heap, 0);
            lock_release(&cache->heap.lock);
        }
    }
    if (lock_try_acquire(&late_heap()->lock)) {
        harvest(late_heap(), 0);
        lock_release(&late_heap()->lock);
    }
    const size_t purged = arena_purge(os_clock_ms(), true);
    count_event(COUNTER_purged_bytes, purged);
    return purged + huge_purge(0, true);
}
