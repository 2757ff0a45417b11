#include "thread/migration.h"

#include "os/os.h"
#include "space/superslab.h"

// Heaps looked at before a slab is made after all.
#define VISITS 16
// Asleep is also who left what others freed of its blocks lying while they asked it for slabs of so many pages: a
// superslab's. By the clock alone, a fast machine makes much of a new heap before it notices that it could have had the old one.
#define PAGES_ASKED SUPERSLAB_PAGES

uint64_t migration_idle_ms(struct thread_cache *cache, uint64_t now_ms) {
    const uint32_t activity = atomic_load_relaxed(&cache->activity);
    if (activity != cache->activity_seen || os_clock_went_back(cache->activity_ms, now_ms)) {
        cache->activity_seen = activity;
        cache->activity_ms = now_ms;
    }
    // Who saw it move may have read the clock after this visitor.
    return now_ms > cache->activity_ms ? now_ms - cache->activity_ms : 0;
}

// `now_ms` may be 0, before the first look at the clock, or of a look long ago: noted as the time at which the cache
// moved it would make a busy heap look asleep. Ticks alone, which have just looked at the clock, note it (migration_idle_ms()).
static bool is_idle(struct thread_cache *cache, uint64_t now_ms) {
    return atomic_load_relaxed(&cache->state) != CACHE_IN_USE ||
           (atomic_load_relaxed(&cache->activity) == cache->activity_seen &&
            now_ms >= cache->activity_ms + MIGRATION_IDLE_MS);
}

// Whether the donor has been asked for enough since its thread's last slow path. A thread that is awake collects with its
// next refill, so that only asking while there is something to collect counts.
static bool is_asleep(struct thread_cache *donor, uint64_t class_index) {
    const uint32_t activity = atomic_load_relaxed(&donor->activity);
    if (activity != donor->activity_asked) {
        donor->activity_asked = activity;
        donor->pages_asked = 0;
    }
    if (donor->pages_asked < PAGES_ASKED && heap_has_remote(&donor->heap)) {
        donor->pages_asked += size_classes[class_index].slab_pages;
    }
    return donor->pages_asked >= PAGES_ASKED;
}

static bool bring_from(struct thread_cache *donor, struct thread_cache *cache,
                       uint64_t class_index) {
    // Never waited for: two threads may look into each other's heaps.
    if (!lock_try_acquire(&donor->heap.lock)) {
        return false;
    }
    bool brought = false;
    // The time of the last tick will do: the clock is libc's, and locks are held.
    if (is_idle(donor, cache->clock_ms) || is_asleep(donor, class_index)) {
        if (heap_has_remote(&donor->heap)) {
            // Nothing goes to the system under two heaps' locks: this thread sees to that when it has let go of its own.
            donor->heap.budget_bytes = 0;
            heap_collect(&donor->heap);
            donor->heap.budget_bytes = HEAP_BUDGET_ALL;
            donor->heap.wants_visit = true;
        }
        if (donor->heap.wants_visit && donor->heap.loose_bytes >= MIGRATION_RELIEF_WORTH_BYTES) {
            cache->to_relieve = donor;
        }
        brought = heap_move_slab(&donor->heap, &cache->heap, class_index);
    }
    lock_release(&donor->heap.lock);
    return brought;
}

static struct thread_cache *next_of(const struct thread_cache *cache, struct thread_cache *all) {
    return cache->next_all == NULL ? all : cache->next_all;
}

void migration_bring(struct thread_cache *all, struct thread_cache *cache, uint64_t class_index) {
    struct thread_cache *const first = cache->donor == NULL ? next_of(cache, all) : cache->donor;
    struct thread_cache *donor = first;
    for (unsigned visits = 0; donor != NULL && visits < VISITS; visits++) {
        if (donor != cache && bring_from(donor, cache, class_index)) {
            break;
        }
        donor = next_of(donor, all);
        if (donor == first) {
            return;
        }
    }
    // One that had a slab is asked first the next time.
    cache->donor = donor;
}
