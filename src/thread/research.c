#include "thread/research.h"

#include "config/options.h"
#include "heap/slab.h"
#include "os/os.h"
#include "space/metadata.h"
#include "space/page_map.h"

_Atomic(struct research_lives *) research_lives;  // release and acquire: see research.h

#define LIFE_BEING_TAKEN 1

// ---- Following the option

static struct research *tables_of(const struct thread_cache *cache) {
    return atomic_load_relaxed(&((struct thread_cache *)(uintptr_t)cache)->research);
}

// Who makes the table. Acquire and release: whoever fails leaves the try to the next. Relaxed in the child of a fork, which may have
// lost it.
static _Atomic(bool) claimed;

void research_fork_child(void) {
    atomic_store_relaxed(&claimed, false);
}

// Of threads that come first at the same time, one makes the table; the others follow at their next tick.
static bool open_lives(void) {
    if (atomic_load_acquire(&research_lives) != NULL) {
        return true;
    }
    if (atomic_exchange_acquire(&claimed, true)) {
        return false;
    }
    struct research_lives *made = metadata_alloc(sizeof *made);
    atomic_store_release(&research_lives, made);
    if (made == NULL) {
        atomic_store_release(&claimed, false);
    }
    return made != NULL;
}

static bool open_tables(struct thread_cache *cache) {
    if (tables_of(cache) != NULL) {
        return true;
    }
    struct research *made = metadata_alloc(sizeof *made);
    atomic_store_release(&cache->research, made);
    return made != NULL;
}

void research_follow(struct thread_cache *cache) {
    const bool wanted = option_live(research) != 0;
    const bool diverts = wanted || cache->checked;
    // Both: a cache that is made meanwhile is diverted before it has tables.
    if (likely(wanted == (cache->researched != 0) && diverts == cache_is_diverted(cache))) {
        return;
    }
    if (wanted && (!open_lives() || !open_tables(cache))) {
        return;
    }
    cache->researched = wanted;
    cache_divert(cache, diverts);
}

// ---- Counting

static uint64_t counted(const struct thread_cache *cache, enum counter counter) {
    return atomic_load_relaxed(
        &((struct thread_cache *)(uintptr_t)cache)->heap.counters.value[counter]);
}

static uint64_t slabs_made(const struct thread_cache *cache) {
    return counted(cache, COUNTER_slabs_created) + counted(cache, COUNTER_slabs_remade);
}

static void begin(const struct thread_cache *cache, struct research_mark *mark) {
    mark->refills = counted(cache, COUNTER_refills);
    mark->flushes = counted(cache, COUNTER_flushes);
    mark->depot_swaps = counted(cache, COUNTER_depot_swaps);
    mark->slabs_made = slabs_made(cache);
    mark->ticks = os_ticks();
}

// Of an operation that ended in a slab of the thread's own.
static enum research_level small_level(const struct thread_cache *cache,
                                       const struct research_mark *mark) {
    if (slabs_made(cache) != mark->slabs_made) {
        return RESEARCH_NEW_SLAB;
    }
    if (counted(cache, COUNTER_refills) != mark->refills ||
        counted(cache, COUNTER_flushes) != mark->flushes) {
        return RESEARCH_HEAP;
    }
    return counted(cache, COUNTER_depot_swaps) != mark->depot_swaps ? RESEARCH_DEPOT
                                                                    : RESEARCH_NODE;
}

// The id of the heap that has the slab of an entry; 0: it is no slab's, or the slab has just gone.
static uint32_t owner_of(uint64_t entry) {
    const struct heap *heap = page_entry_class(entry) < SIZE_CLASS_COUNT
                                  ? atomic_load_relaxed(&page_entry_run(entry)->heap)
                                  : NULL;
    return heap == NULL ? 0 : heap->id;
}

static enum research_level level(const struct thread_cache *cache, const struct research_mark *mark,
                                 uint64_t entry, uint32_t heap_id) {
    switch (page_entry_kind(entry)) {
    case PAGE_KIND_LARGE:
        return RESEARCH_LARGE;
    case PAGE_KIND_HUGE:
        return RESEARCH_HUGE;
    case PAGE_KIND_GUARDED:
        return RESEARCH_GUARDED;
    case PAGE_KIND_NONE:
        return RESEARCH_FAILED;
    default:
        return heap_id == cache->heap.id ? small_level(cache, mark) : RESEARCH_REMOTE;
    }
}

static bool is_small(uint64_t entry) {
    return page_entry_class(entry) < SIZE_CLASS_COUNT;
}

// ---- Lives

static struct research_life *life_of(uintptr_t address) {
    struct research_lives *all = atomic_load_acquire(&research_lives);
    // Fibonacci hashing.
    const uint64_t hash = (address >> 4) * UINT64_C(0x9E3779B97F4A7C15);
    return &all->lives[hash >> (64 - RESEARCH_LIVES_LOG2)];
}

static void begin_life(struct research *tables, uintptr_t address, uint64_t ticks) {
    struct research_lives *all = atomic_load_acquire(&research_lives);
    struct research_life *life = life_of(address);
    uint64_t found = atomic_load_acquire(&life->address);
    // A block of that address was freed by a thread that did not count.
    if (found == address && atomic_cas_acquire(&life->address, &found, 0)) {
        found = 0;
    }
    const uint64_t left = atomic_load_relaxed(&tables->countdown);
    atomic_store_relaxed(&tables->countdown, left == 0 ? RESEARCH_SAMPLE - 1 : left - 1);
    if (left != 0) {
        return;
    }
    if (found != 0 || !atomic_cas_acquire(&life->address, &found, LIFE_BEING_TAKEN)) {
        atomic_add_relaxed(&all->without_place, 1);
        return;
    }
    atomic_store_relaxed(&life->ticks, ticks);
    atomic_store_release(&life->address, address);
    atomic_add_relaxed(&all->followed, 1);
}

static void end_life(struct research *tables, uintptr_t address, uint64_t ticks) {
    struct research_life *life = life_of(address);
    uint64_t found = atomic_load_acquire(&life->address);
    if (likely(found != address)) {
        return;
    }
    const uint64_t born = atomic_load_relaxed(&life->ticks);
    if (atomic_cas_acquire(&life->address, &found, 0)) {
        histogram_add(&tables->lifetime_ticks, ticks > born ? ticks - born : 0);
    }
}

void research_note_request(struct run *slab, const void *block, size_t bytes) {
    // With slack_check whoever fills the slack has written the size.
    if (likely(!options.request_sizes) || options.slack_check) {
        return;
    }
    // A pointer into a block that was freed comes back from the thread's cache before anybody looks at it.
    const int index = slab_index(slab, (uintptr_t)block);
    if (likely(index >= 0)) {
        const uint16_t kept = bytes < UINT16_MAX ? (uint16_t)bytes : UINT16_MAX;
        atomic_store_relaxed(&slab_requests(slab)[index], kept);
    }
}

// ---- The two operations

void research_alloc_begin(const struct thread_cache *cache, struct research_mark *mark) {
    begin(cache, mark);
}

void research_alloc_end(struct thread_cache *cache, const struct research_mark *mark,
                        const void *block, size_t bytes) {
    const uint64_t ticks = os_ticks();
    struct research *tables = tables_of(cache);
    const uint64_t entry = block == NULL ? PAGE_ENTRY_NONE : page_map_get((uintptr_t)block);
    heap_count(&cache->heap, COUNTER_mallocs_seen, 1);
    heap_count(&cache->heap, COUNTER_malloc_ticks, ticks - mark->ticks);
    histogram_add(&tables->alloc_ticks, ticks - mark->ticks);
    histogram_add(&tables->request_bytes, bytes);
    if (is_small(entry)) {
        atomic_bump_owned(&tables->allocs[page_entry_class(entry)], 1u);
        atomic_bump_owned(&tables->requested_bytes[page_entry_class(entry)], bytes);
        research_note_request(page_entry_run(entry), block, bytes);
    }
    // A block that came from another heap's slab came through the magazine as well.
    enum research_level at = level(cache, mark, entry, owner_of(entry));
    at = at == RESEARCH_REMOTE ? small_level(cache, mark) : at;
    atomic_bump_owned(&tables->alloc_levels[at], 1u);
    if (block != NULL) {
        begin_life(tables, (uintptr_t)block, ticks);
    }
}

static void add_flow(struct research *tables, uint64_t heap_id) {
    for (unsigned i = 0; heap_id != 0 && i < RESEARCH_FLOWS; i++) {
        struct research_flow *flow = &tables->flows[(heap_id + i) % RESEARCH_FLOWS];
        const uint64_t found = atomic_load_relaxed(&flow->heap_id);
        if (found == 0) {
            atomic_store_relaxed(&flow->heap_id, heap_id);
        }
        if (found == 0 || found == heap_id) {
            atomic_bump_owned(&flow->blocks, 1u);
            return;
        }
    }
    atomic_bump_owned(&tables->other_flows, 1u);
}

void research_free_begin(const struct thread_cache *cache, struct research_mark *mark,
                         const void *block) {
    const uintptr_t address = (uintptr_t)block;
    mark->entry = address >> ADDRESS_BITS == 0 ? page_map_get(address) : PAGE_ENTRY_NONE;
    mark->heap_id = owner_of(mark->entry);
    // Before the block is anybody else's.
    end_life(tables_of(cache), address, os_ticks());
    begin(cache, mark);
}

void research_free_end(struct thread_cache *cache, const struct research_mark *mark) {
    struct research *tables = tables_of(cache);
    const uint64_t ticks = os_ticks() - mark->ticks;
    heap_count(&cache->heap, COUNTER_frees_seen, 1);
    heap_count(&cache->heap, COUNTER_free_ticks, ticks);
    histogram_add(&tables->free_ticks, ticks);
    const enum research_level at = level(cache, mark, mark->entry, mark->heap_id);
    atomic_bump_owned(&tables->free_levels[at], 1u);
    if (is_small(mark->entry)) {
        atomic_bump_owned(&tables->frees[page_entry_class(mark->entry)], 1u);
    }
    if (at == RESEARCH_REMOTE) {
        add_flow(tables, mark->heap_id);
    }
}
