#include "thread/maintenance.h"

#include "config/control.h"
#include "config/options.h"
#include "heap/heap_purge.h"
#include "heap/huge.h"
#include "heap/quarantine.h"
#include "os/events.h"
#include "os/file.h"
#include "os/os.h"
#include "space/arena_pages.h"
#include "space/arena_purge.h"
#include "thread/lifecycle.h"
#include "thread/migration.h"
#include "thread/relief.h"
#include "thread/research.h"

// A heap whose thread took no slow path for a decay interval is idle: its remote frees are collected, its empty slabs
// released, and, when it stays idle, its sparse slabs purged. Where another thread has collected, in need of slabs, the
// empty ones are released after MIGRATION_IDLE_MS: what it asked for were slabs of its classes only.
// A tick visits this many heaps in turn, and stops after cleaning up a few.
#define HARVEST_VISITS 64
#define HARVEST_HEAPS 8

// A cursor that any thread moves; two threads at one heap do no harm. Release on moving, acquire on
// reading: the reader follows the cache's next_all.
static _Atomic(struct thread_cache *) harvest_cursor;

// Returns the bytes of pages inside slabs; whole slabs are the arena's to give back.
static size_t give_back_everything(struct heap *heap) {
    heap_end_quarantine(heap);
    relief_give_back(heap, false);
    return heap_purge_slabs(heap, true);
}

static bool wants_full_round(const struct heap *heap, uint64_t now_ms) {
    return heap->put_since_purge || heap_round_goes_on(heap, false) ||
           heap_may_purge_refused(heap, now_ms);
}

static void do_full_round(struct heap *heap, uint64_t now_ms) {
    heap_put_off_refused(heap, now_ms);
    relief_give_back(heap, false);
    heap_purge_slabs(heap, true);
}

// What was freed of the blocks of those without a cache: rare, and of no thread that could be asked how long it is idle.
static void visit_late_heap(uint64_t now_ms) {
    struct heap *heap = late_heap();
    if (lock_try_acquire(&heap->lock)) {
        if (heap->wants_visit || heap_has_remote(heap) || wants_full_round(heap, now_ms)) {
            heap->budget_bytes = HEAP_BUDGET_SELDOM;
            do_full_round(heap, now_ms);
            heap->wants_visit = heap_has_more(heap);
            heap->budget_bytes = HEAP_BUDGET_ALL;
        }
        lock_release(&heap->lock);
    }
}

// True when there was something to clean up. The heap's lock is held. Pages inside its slabs wait
// for slab_purge_delay_ms: a heap may be idle only between two threads. *budget_bytes: for all visits of a tick.
static bool visit(struct thread_cache *cache, uint64_t now_ms, size_t *budget_bytes) {
    struct heap *heap = &cache->heap;
    // Visits come from all other threads, however close together: time tells, not their number.
    const uint64_t idle_ms = migration_idle_ms(cache, now_ms);
    if (idle_ms == 0) {
        return false;
    }
    bool cleaned = false;
    heap->budget_bytes = *budget_bytes;
    const uint64_t decay_ms = option_live(decay_interval_ms);
    if ((heap->wants_visit && idle_ms >= least_u64(MIGRATION_IDLE_MS, decay_ms)) ||
        (heap_has_remote(heap) && idle_ms >= decay_ms)) {
        relief_give_back(heap, true);
        heap->wants_visit = heap_has_more(heap);
        cleaned = true;
    }
    // With no budget left the next visit goes on where this one ended.
    const bool may_purge = heap->budget_bytes != 0;
    const bool wants_all = may_purge && wants_full_round(heap, now_ms);
    const bool wants_early = may_purge && (heap->put_since_early || heap_round_goes_on(heap, true));
    if (wants_all && idle_ms >= option_live(slab_purge_delay_ms)) {
        do_full_round(heap, now_ms);
        cleaned = true;
    } else if (wants_early && idle_ms >= heap_purge_delay_ms(heap)) {
        relief_give_back(heap, false);
        heap->put_since_purge |= heap_purge_early(heap, true);
        cleaned = true;
    }
    *budget_bytes = heap->budget_bytes;
    heap->budget_bytes = HEAP_BUDGET_ALL;
    return cleaned;
}

static void relieve(struct thread_cache *cache) {
    struct heap *heap = &cache->to_relieve->heap;
    cache->to_relieve = NULL;
    relief_part(heap, MIGRATION_RELIEF_BYTES);
}

// Returns what is left of the budget: none where there may be more to do.
static size_t harvest_idle(struct thread_cache *own, uint64_t now_ms, size_t budget_bytes) {
    struct thread_cache *cache = atomic_load_acquire(&harvest_cursor);
    const struct thread_cache *first = NULL;
    unsigned cleaned = 0;
    for (unsigned i = 0; i < HARVEST_VISITS && cleaned < HARVEST_HEAPS && budget_bytes != 0; i++) {
        cache = cache == NULL || cache->next_all == NULL ? lifecycle_caches() : cache->next_all;
        if (cache == first) {
            break;  // once around
        }
        first = first == NULL ? cache : first;
        if (cache != own && lock_try_acquire(&cache->heap.lock)) {
            const bool was_cleaned = visit(cache, now_ms, &budget_bytes);
            cleaned += was_cleaned;
            if (unlikely(was_cleaned && cache->heap.loose_bytes > option_live(excess_bytes))) {
                own->heap.overfull = &cache->heap;  // more than may wait for another tick
            }
            lock_release(&cache->heap.lock);
        }
    }
    atomic_store_release(&harvest_cursor, cache);
    return budget_bytes;
}

static void purge_due(uint64_t now_ms, size_t budget_bytes) {
    if (arena_purge_is_due(now_ms)) {
        arena_purge(now_ms, budget_bytes);
    }
    if (huge_has_kept()) {
        huge_purge(now_ms, false);
    }
}

size_t maintenance_reclaim(void) {
    // It may be the first call that the process makes.
    lifecycle_start();
    struct thread_cache *own = thread_cache;
    if (cache_is_real(own) && !own->checked) {
        cache_empty(own);
    }
    lifecycle_empty_kept();
    size_t inside = 0;
    // Twice: what reached the former heap of a slab that has moved is handed on to its present one.
    for (unsigned round = 0; round < 2; round++) {
        for (struct thread_cache *cache = lifecycle_caches(); cache != NULL;
             cache = cache->next_all) {
            if (lock_try_acquire(&cache->heap.lock)) {
                inside += give_back_everything(&cache->heap);
                lock_release(&cache->heap.lock);
            }
        }
    }
    if (lock_try_acquire(&late_heap()->lock)) {
        inside += give_back_everything(late_heap());
        lock_release(&late_heap()->lock);
    }
    const size_t purged = arena_purge(os_clock_ms(), ARENA_PURGE_ALL);
    const size_t unmapped = huge_purge(0, true);
    huge_await_unmapping();
    return inside + purged + unmapped;
}

// What giving back may return at most, and what the block has that is to grow: all that is mapped.
static uint64_t mapped_bytes(void) {
    huge_await_unmapping();
    struct huge_totals huge;
    huge_totals(&huge);
    return arena_mapped_bytes() + huge.live_bytes + huge.kept_bytes;
}

// Whether the system maps a page, and leaves it to be filled when it is touched: after mlockall(MCL_FUTURE) a longer mapping would be
// filled as a whole.
static bool system_maps_a_page(void) {
    void *page = os_map(os_page_bytes(), os_page_bytes());
    if (page == NULL) {
        return false;
    }
    const bool is_filled = os_resident_bytes(page, os_page_bytes()) != 0;
    os_unmap(page, os_page_bytes());
    return !is_filled;
}

// A length read from bad input must not cost the process its free memory, nor threads the time for that. That the system refuses a
// single page as well tells of another bound than bytes: of mappings, which giving back makes fewer.
static bool is_hopeless(size_t bytes) {
    const uint64_t mapped = mapped_bytes();
    return bytes > mapped && system_maps_a_page() &&
           !os_would_map(align_up(bytes - mapped, os_page_bytes()));
}

void maintenance_reclaim_for(size_t bytes) {
    if (!is_hopeless(bytes)) {
        maintenance_reclaim();
    }
}

// The process, one of whose threads follows a wish; 0: none does. In the child of a fork, which may have lost that thread, it is
// another's number. Acquire and release by that thread: the next one finds purge_done as it left it.
static _Atomic(uint32_t) follower;

SLOW_PATH static void follow_wish(void) {
    const uint32_t self = (uint32_t)os_process_id();
    uint32_t before = atomic_load_relaxed(&follower);
    if (before == self || !atomic_cas_acquire(&follower, &before, self)) {
        return;
    }
    const uint32_t wanted = atomic_load_relaxed(&control.purge_wanted);
    if (wanted != atomic_load_relaxed(&control.purge_done)) {
        maintenance_reclaim();
        atomic_store_relaxed(&control.purge_done, wanted);
    }
    atomic_store_release(&follower, 0);
}

// What a reader outside of the process wishes. Of the threads that see it, one does it.
static void follow_control(void) {
    if (unlikely(atomic_load_relaxed(&control.purge_wanted) !=
                 atomic_load_relaxed(&control.purge_done))) {
        follow_wish();
    }
}

// Which round is to be gone on with, or begins.
static enum own_round own_round(const struct thread_cache *cache, uint64_t now_ms) {
    if (cache->own_round != OWN_ROUND_NONE) {
        return (enum own_round)cache->own_round;
    }
    if (now_ms - cache->slab_purge_ms >= option_live(slab_purge_delay_ms)) {
        return OWN_ROUND_FULL;
    }
    return now_ms - cache->early_purge_ms < heap_purge_delay_ms(&cache->heap) ? OWN_ROUND_NONE
                                                                              : OWN_ROUND_EARLY;
}

// What is free inside the slabs of the thread's own heap: as much as one call does.
static bool go_own_round(struct thread_cache *cache, enum own_round round, size_t budget_bytes) {
    struct heap *heap = &cache->heap;
    lock_acquire(&heap->lock);
    cache_collect(cache);
    heap->budget_bytes = budget_bytes;
    if (round == OWN_ROUND_FULL) {
        heap_purge_slabs(heap, false);
    } else {
        heap_purge_early(heap, false);
    }
    heap->budget_bytes = HEAP_BUDGET_ALL;
    const bool is_over = heap_round_is_over(heap);
    lock_release(&heap->lock);
    return is_over;
}

static void purge_own_slabs(struct thread_cache *cache, uint64_t now_ms, size_t budget_bytes) {
    const enum own_round round = own_round(cache, now_ms);
    if (round == OWN_ROUND_NONE) {
        return;
    }
    // The first look only starts the clock.
    if (cache->slab_purge_ms != 0 && !go_own_round(cache, round, budget_bytes)) {
        cache->own_round = (uint8_t)round;
        return;
    }
    cache->own_round = OWN_ROUND_NONE;
    cache->early_purge_ms = now_ms;
    if (round == OWN_ROUND_FULL) {
        cache->slab_purge_ms = now_ms;
    }
}

// What a tick may give back of each kind: a thread that ticks at every pace does little at a time, one that comes seldom as much more
// as the time since its last tick has paces.
static size_t tick_budget(uint64_t passed_ticks) {
    return (size_t)least_u64(HEAP_BUDGET_CALL * (passed_ticks / OS_TICKS_PACE), HEAP_BUDGET_SELDOM);
}

// Where something is left to give back the next tick comes after this part of a pace.
#define HURRY_PART 8

// By itself: the gates take what it costs off, because how often it comes goes by the clock.
SLOW_PATH static void look_at_clock(struct thread_cache *cache, uint64_t passed_ticks) {
    const size_t budget_bytes = tick_budget(passed_ticks);
    const uint64_t now_ms = os_clock_ms();
    cache->clock_ms = now_ms;
    event_clock_set(cache->pace_ticks, now_ms);
    heap_count(&cache->heap, COUNTER_ticks, 1);
    research_follow(cache);
    if (now_ms - cache->decay_ms >= option_live(decay_interval_ms)) {
        cache->decay_ms = now_ms;
        visit_late_heap(now_ms);
        cache_decay(cache);
        lock_acquire(&cache->heap.lock);
        heap_decay_spares(&cache->heap);
        lock_release(&cache->heap.lock);
    }
    purge_own_slabs(cache, now_ms, budget_bytes);
    const size_t left_bytes = harvest_idle(cache, now_ms, budget_bytes);
    lifecycle_empty_overdue(now_ms);
    purge_due(now_ms, budget_bytes);
    follow_control();
    // Without a delay a purge is due as long as there is a page that the system refuses.
    if (unlikely(cache->own_round != OWN_ROUND_NONE || left_bytes == 0 ||
                 (arena_purge_is_due(now_ms) && option_live(purge_delay_ms) != 0))) {
        cache->pace_ticks -= OS_TICKS_PACE - OS_TICKS_PACE / HURRY_PART;
    }
}

// The heap has just grown: as much of the freed mappings is no longer kept beside it, or the peak would hold both.
static void make_up_for_growth(struct thread_cache *cache, uint32_t peak_pages) {
    cache->peak_pages_seen = peak_pages;
    if (huge_has_kept()) {
        huge_make_room();
    }
}

// A cache whose heap grows by so many slabs gives back what it did not need meanwhile, as after a decay
// interval: blocks of sizes that the program has left behind would otherwise add to the peak.
#define SLABS_PER_DECAY 8

bool maintenance_tick(struct thread_cache *cache) {
    const uint32_t peak_pages = atomic_load_relaxed(&arena_peak_pages);
    if (unlikely(peak_pages != cache->peak_pages_seen)) {
        make_up_for_growth(cache, peak_pages);
    }
    if (unlikely(cache->to_relieve != NULL)) {
        relieve(cache);
    }
    if (unlikely(cache->heap.overfull != NULL)) {
        relief_overfull(cache);
    }
    if (unlikely(cache->slabs_wanted >= SLABS_PER_DECAY)) {
        cache_decay(cache);
    }
    if (unlikely(cache->learner_is_due)) {
        cache->learner_is_due = 0;
        knobs_call(&knobs_hooks.window, cache);
        cache->learner_events = 0;
    }
    const uint64_t ticks = os_ticks();
    const uint64_t passed_ticks = ticks - cache->pace_ticks;
    if (likely(passed_ticks < OS_TICKS_PACE)) {
        return false;
    }
    cache->pace_ticks = ticks;
    look_at_clock(cache, passed_ticks);
    return true;
}
