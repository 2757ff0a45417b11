#include "api/alloc.h"

#include <errno.h>

#include "api/exit_file.h"
#include "api/place.h"
#include "api/request.h"
#include "config/options.h"
#include "control/check.h"
#include "control/report.h"
#include "heap/guarded.h"
#include "heap/huge.h"
#include "heap/large.h"
#include "heap/misuse.h"
#include "heap/quarantine.h"
#include "heap/slab.h"
#include "heap/slack.h"
#include "os/os.h"
#include "thread/lifecycle.h"
#include "thread/maintenance.h"
#include "thread/relief.h"
#include "thread/research.h"

// Short programs may end, by _exit, before the first tick: the books are written early on as well, at the 4th, 32nd and
// 256th slow path.
#define EARLY_REPORTS 3

static bool is_early_slow_path(struct thread_cache *cache) {
    if (likely(cache->early_reports == EARLY_REPORTS) ||
        atomic_load_relaxed(&cache->activity) < 4u << (3 * cache->early_reports)) {
        return false;
    }
    cache->early_reports++;
    return true;
}

// After a slow path. No lock is held.
static void tick(struct thread_cache *cache) {
    if (unlikely(is_early_slow_path(cache))) {
        report_refresh();
    }
    if (unlikely(maintenance_tick(cache))) {
        const uint64_t check = option_live(check);
        if (unlikely(check != 0) && (check == 1 ? check_at_tick() : check_all()) != 0) {
            os_abort();
        }
        report_tick();
        exit_file_tick();
    } else if (unlikely(option_live(check) == 2) && check_all() != 0) {
        os_abort();
    }
}

// ---- Allocation ----

static void *alloc_small_once(struct thread_cache *cache, uint64_t class_index) {
    return cache == NULL ? late_alloc(class_index) : cache_alloc_slow(cache, class_index);
}

// Allocations of this class since its last slow path, this one included, as far as can be known: a
// refill serves those that follow.
static uint64_t stands_for(const struct thread_cache *cache, uint64_t class_index) {
    return cache_is_diverted(cache) || cache_has_unseen(cache, class_index)
               ? 1
               : cache_refill_blocks(cache, class_index);
}

// NULL unless this allocation is chosen to be guarded.
static void *alloc_guarded(struct thread_cache *cache, uint64_t class_index, size_t bytes) {
    if (likely(!guarded_is_on()) || cache == NULL) {
        return NULL;
    }
    const uint64_t blocks = stands_for(cache, class_index);
    if (likely(!guarded_is_due(&cache->sampler, blocks))) {
        return NULL;
    }
    void *block = guarded_alloc(bytes, cache->thread_id);
    if (unlikely(block == NULL)) {
        guarded_is_missed(&cache->sampler, blocks);
    }
    return block;
}

// Records what was asked for in a block that is new.
static void set_slack(void *block, size_t bytes) {
    struct run *slab = slab_find((uintptr_t)block);
    slack_set(slab, (unsigned)slab_index(slab, (uintptr_t)block), bytes);
}

static void *alloc_small_unguarded(struct thread_cache *cache, uint64_t class_index, size_t bytes) {
    void *block = alloc_small_once(cache, class_index);
    if (unlikely(block == NULL)) {
        maintenance_reclaim();
        block = alloc_small_once(cache, class_index);
    }
    if (unlikely(options.slack_check) && block != NULL) {
        set_slack(block, bytes);
    }
    return block;
}

static void *alloc_small_slow(struct thread_cache *cache, size_t bytes, size_t alignment) {
    const uint64_t class_index = class_for(bytes, alignment);
    const size_t guarded_bytes =
        likely(alignment <= BLOCK_ALIGN) ? bytes : aligned_block_bytes(bytes, alignment);
    void *block = alloc_guarded(cache, class_index, guarded_bytes);
    if (likely(block == NULL)) {
        block = alloc_small_unguarded(cache, class_index, bytes);
    }
    if (likely(cache != NULL)) {
        tick(cache);
    }
    return block;
}

static void *alloc_big_once(size_t bytes, size_t alignment, bool zero) {
    return bytes <= LARGE_BYTES_MAX && alignment <= LARGE_BYTES_MAX
               ? large_alloc(bytes, alignment, zero)
               : huge_alloc(bytes, alignment, zero);
}

// Above SMALL_BYTES_MAX, or with an alignment above a page.
static void *alloc_big(struct thread_cache *cache, size_t bytes, size_t alignment, bool zero) {
    // Not for want of memory: giving back what there is would not help.
    if (bytes > HUGE_BYTES_MAX || alignment > HUGE_BYTES_MAX) {
        return NULL;
    }
    void *block = alloc_big_once(bytes, alignment, zero);
    if (unlikely(block == NULL)) {
        maintenance_reclaim_for(bytes);
        block = alloc_big_once(bytes, alignment, zero);
    }
    if (likely(cache != NULL)) {
        tick(cache);
    }
    return block;
}

static void *or_enomem(void *block) {
    if (unlikely(block == NULL)) {
        count_event(COUNTER_failures, 1);
        errno = ENOMEM;
    }
    return block;
}

// `zero` is asked of what is not small alone.
static void *alloc_uncounted(size_t bytes, size_t alignment, bool zero) {
    const int saved_errno = errno;
    struct thread_cache *cache = lifecycle_attach();
    const bool was_entered = cache != NULL && cache_enter(cache);
    void *block = is_small(bytes, alignment) ? alloc_small_slow(cache, bytes, alignment)
                                             : alloc_big(cache, bytes, alignment, zero);
    if (likely(cache != NULL)) {
        cache_leave(cache, was_entered);
    }
    errno = saved_errno;
    return block;
}

// The calling thread's cache when its operations are to be counted, else NULL.
static struct thread_cache *researched_cache(struct thread_cache *(*attach)(void)) {
    const int saved_errno = errno;
    struct thread_cache *cache = attach();
    errno = saved_errno;
    return cache != NULL && cache->researched ? cache : NULL;
}

SLOW_PATH static void *alloc_researched(size_t bytes, size_t alignment, bool zero) {
    struct research_mark mark;
    struct thread_cache *cache = researched_cache(lifecycle_attach);
    if (cache == NULL) {
        return alloc_uncounted(bytes, alignment, zero);
    }
    research_alloc_begin(cache, &mark);
    void *block = alloc_uncounted(bytes, alignment, zero);
    const bool is_plain = alignment <= BLOCK_ALIGN || !is_small(bytes, alignment);
    research_alloc_end(cache, &mark, block,
                       is_plain ? bytes : aligned_block_bytes(bytes, alignment));
    return block;
}

SLOW_PATH static void *alloc_started(size_t bytes, size_t alignment, bool zero) {
    // The options are read below, and another thread may be loading them.
    lifecycle_start();
    return likely(option_live(research) == 0) ? alloc_uncounted(bytes, alignment, zero)
                                              : alloc_researched(bytes, alignment, zero);
}

SLOW_PATH static void *alloc_slowest(size_t bytes, size_t alignment, bool zero) {
    return or_enomem(alloc_started(bytes, alignment, zero));
}

static inline void *alloc_from_depot(size_t bytes) {
    return likely(bytes <= SMALL_BYTES_MAX) ? cache_pop_depot(thread_cache, size_class_index(bytes))
                                            : NULL;
}

MIDDLE_PATH void *alloc_slow(size_t bytes) {
    void *block = alloc_from_depot(bytes);
    return likely(block != NULL) ? block : alloc_slowest(bytes, BLOCK_ALIGN, false);
}

MIDDLE_PATH void *alloc_attempt(size_t bytes) {
    void *block = alloc_from_depot(bytes);
    return likely(block != NULL) ? block : alloc_started(bytes, BLOCK_ALIGN, false);
}

void *hakmem_alloc(size_t bytes) {
    return alloc(bytes);
}

void *hakmem_alloc_zeroed(size_t bytes) {
    if (likely(bytes <= SMALL_BYTES_MAX)) {
        void *block = alloc(bytes);
        return block == NULL ? NULL : __builtin_memset(block, 0, bytes);
    }
    return alloc_slowest(bytes, BLOCK_ALIGN, true);
}

MIDDLE_PATH void *alloc_aligned_slow(size_t alignment, size_t bytes) {
    if (unlikely(alignment > ALIGNMENT_MAX || bytes > REQUEST_BYTES_MAX)) {
        return or_enomem(NULL);
    }
    alignment = raised_alignment(alignment);
    if (bytes > SMALL_BYTES_MAX || alignment > SMALL_BYTES_MAX) {
        return alloc_slowest(bytes == 0 ? 1 : bytes, alignment, false);
    }
    struct thread_cache *cache = thread_cache;
    const uint64_t class_index = size_class_aligned(bytes, alignment);
    // The hit looked into another class where a table has no class for a multiple of the alignment.
    void *block = cache_pop(cache, PAGE_KIND_SLAB + class_index);
    block = block != NULL ? block : cache_pop_depot(cache, class_index);
    return block != NULL ? block : alloc_slowest(bytes, alignment, false);
}

void *hakmem_alloc_aligned(size_t alignment, size_t bytes) {
    return alloc_aligned(alignment, bytes);
}

void alloc_resized(void) {
    struct thread_cache *cache = lifecycle_attach();
    if (likely(cache != NULL)) {
        const bool was_entered = cache_enter(cache);
        tick(cache);
        cache_leave(cache, was_entered);
    }
}

// ---- Free ----

static void free_checked(struct run *slab, void *block) {
    struct heap *heap = atomic_load_relaxed(&slab->heap);
    bool done = false;
    while (!done && heap != NULL) {
        lock_acquire(&heap->lock);
        // Of a block that is free already the slab may have gone meanwhile, or be another heap's.
        done = atomic_load_relaxed(&slab->heap) == heap;
        if (likely(done)) {
            heap_free_checked(heap, slab, block);
        }
        lock_release(&heap->lock);
        heap = atomic_load_relaxed(&slab->heap);
    }
    if (unlikely(!done)) {
        misuse_report(MISUSE_INVALID_FREE, (uintptr_t)block);
    }
}

static void free_small(struct thread_cache *cache, struct run *slab, void *block) {
    if (unlikely(heap_checks_frees())) {
        free_checked(slab, block);
    } else if (unlikely(cache == NULL)) {
        struct heap *overfull = late_free(slab, block);
        if (unlikely(overfull != NULL)) {
            relief_part(overfull, HEAP_BUDGET_CALL);
        }
    } else {
        cache_free_slow(cache, slab, block);
    }
}

static void free_guarded(uintptr_t address) {
    uintptr_t damage;
    const uint32_t thread = cache_is_real(thread_cache) ? thread_cache->thread_id : os_thread_id();
    if (!guarded_free(address, thread, &damage)) {
        misuse_report(MISUSE_INVALID_FREE, address);
    } else if (unlikely(damage != 0)) {
        misuse_report(damage < address ? MISUSE_UNDERFLOW : MISUSE_OVERFLOW, damage);
    }
}

static void free_uncounted(void *block) {
    if (block == NULL) {
        return;
    }
    const int saved_errno = errno;
    struct thread_cache *cache = lifecycle_attach_to_free();
    const bool was_entered = cache != NULL && cache_enter(cache);
    const uintptr_t address = (uintptr_t)block;
    const struct place place = place_find(address);
    switch (place.kind) {
    case PLACE_SMALL:
        free_small(cache, place.run, block);
        break;
    case PLACE_LARGE:
        if (!large_free(place.run, address)) {
            misuse_report(MISUSE_INVALID_FREE, address);
        }
        break;
    case PLACE_HUGE:
        if (!huge_free(place.huge, address)) {
            misuse_report(MISUSE_INVALID_FREE, address);
        }
        break;
    case PLACE_GUARDED:
        free_guarded(address);
        break;
    case PLACE_NONE:
        misuse_report(MISUSE_INVALID_FREE, address);
        break;
    }
    if (likely(cache != NULL)) {
        tick(cache);
        cache_leave(cache, was_entered);
    }
    errno = saved_errno;
}

SLOW_PATH static void free_researched(void *block) {
    struct research_mark mark;
    struct thread_cache *cache = researched_cache(lifecycle_attach_to_free);
    if (cache == NULL) {
        free_uncounted(block);
        return;
    }
    research_free_begin(cache, &mark, block);
    free_uncounted(block);
    research_free_end(cache, &mark);
}

SLOW_PATH static void free_slowest(void *block) {
    lifecycle_start();
    if (likely(option_live(research) == 0)) {
        free_uncounted(block);
    } else {
        free_researched(block);
    }
}

// A block of a class whose magazine is full: whose slab it is from need not be known.
static bool free_full(struct thread_cache *cache, uint64_t class_index, void *block) {
    const int saved_errno = errno;
    const bool was_entered = cache_enter(cache);
    const bool pushed = cache_push_slow(cache, class_index, block);
    if (likely(pushed)) {
        tick(cache);
    }
    cache_leave(cache, was_entered);
    errno = saved_errno;
    return pushed;
}

// A block of a class whose depot did not take the full node. The class is looked up again, and is none by now where others freed the
// block as well and its slab has ended.
static MIDDLE_PATH void free_behind_depot(void *block) {
    struct thread_cache *cache = thread_cache;
    const uint64_t class_index = cache_class_of(cache, (uintptr_t)block);
    if (unlikely(class_index >= SIZE_CLASS_COUNT) || !free_full(cache, class_index, block)) {
        free_slowest(block);
    }
}

// Without the flat page map no free is a hit. Where the magazine has room the page is all that is to be looked up.
static MIDDLE_PATH void free_without_flat_map(void *block) {
    if (cache_is_real(thread_cache) && (uintptr_t)block >> ADDRESS_BITS == 0) {
        const uint64_t entry = page_map_get_unflat((uintptr_t)block);
        if (likely(cache_push_kind(thread_cache, page_entry_kind(entry), block))) {
            return;
        }
    }
    free_slowest(block);
}

MIDDLE_PATH void free_slow(void *block) {
    // First: programs free NULL as often as blocks.
    if (block == NULL) {
        return;
    }
    struct thread_cache *cache = thread_cache;
    const uint64_t class_index = cache_class_of(cache, (uintptr_t)block);
    if (likely(class_index < SIZE_CLASS_COUNT)) {
        if (!cache_push_depot(cache, class_index, block)) {
            free_behind_depot(block);
        }
    } else if (unlikely(page_map_flat == NULL)) {
        free_without_flat_map(block);
    } else {
        free_slowest(block);
    }
}

void hakmem_dealloc(void *block) {
    dealloc(block);
}

SLOW_PATH void free_sized_slow(void *block, size_t alignment, size_t bytes) {
    if (unlikely(options.immediate_double_free) && block != NULL) {
        const struct place place = place_find_live((uintptr_t)block, MISUSE_INVALID_FREE);
        if (place.kind == PLACE_NONE) {
            return;
        }
        if (!place_fits(&place, alignment, bytes)) {
            misuse_report_size((uintptr_t)block, place.usable_bytes, bytes);
            return;
        }
    }
    free_slow(block);
}
