#include "api/alloc.h"

#include <errno.h>

#include "base/bits.h"
#include "config/options.h"
#include "control/report.h"
#include "control/stats.h"
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
#include "thread/research.h"

// Sizes above this are refused, as by glibc: differences of pointers must fit ptrdiff_t.
#define REQUEST_BYTES_MAX ((size_t)PTRDIFF_MAX)

// Short programs may end, by _exit, before the first tick: the books are written early on as well.
static bool is_early_slow_path(struct thread_cache *cache) {
    const uint32_t count = atomic_load_relaxed(&cache->activity);
    return count == 4 || count == 32 || count == 256;
}

// After a slow path. No lock is held.
static void tick(struct thread_cache *cache) {
    if (unlikely(is_early_slow_path(cache))) {
        report_refresh();
    }
    if (unlikely(maintenance_tick(cache))) {
        if (unlikely(option_live(check) != 0) && check_all() != 0) {
            os_abort();
        }
        report_refresh();
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
    if (likely(!guarded_is_on()) || cache == NULL ||
        !guarded_is_due(&cache->sampler, stands_for(cache, class_index))) {
        return NULL;
    }
    return guarded_alloc(bytes);
}

// Records what was asked for in a block that is new.
static void set_slack(void *block, size_t bytes) {
    struct run *slab = arena_find((uintptr_t)block);
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

// Whether a small block serves. With slack_check it is to be larger than the request.
static bool is_small(size_t bytes, size_t alignment) {
    return bytes <= SMALL_BYTES_MAX - options.slack_check && alignment <= SMALL_BYTES_MAX;
}

// is_small(bytes, alignment).
static uint64_t class_for(size_t bytes, size_t alignment) {
    return alignment <= BLOCK_ALIGN ? size_class_index(bytes + options.slack_check)
                                    : size_class_aligned(bytes + options.slack_check, alignment);
}

// Bytes of the block that serves an aligned request where nothing is told of the alignment: of that
// size all are aligned. Both at most SMALL_BYTES_MAX.
static size_t aligned_block_bytes(size_t bytes, size_t alignment) {
    return size_classes[size_class_aligned(bytes, alignment)].block_bytes;
}

static void *alloc_small_slow(size_t bytes, size_t alignment) {
    struct thread_cache *cache = lifecycle_attach();
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
static void *alloc_big(size_t bytes, size_t alignment, bool zero) {
    struct thread_cache *cache = lifecycle_attach();
    if (bytes > REQUEST_BYTES_MAX) {
        return NULL;
    }
    void *block = alloc_big_once(bytes, alignment, zero);
    if (unlikely(block == NULL)) {
        maintenance_reclaim();
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
    void *block = is_small(bytes, alignment) ? alloc_small_slow(bytes, alignment)
                                             : alloc_big(bytes, alignment, zero);
    errno = saved_errno;
    return or_enomem(block);
}

// The calling thread's cache when its operations are to be counted, else NULL.
static struct thread_cache *researched_cache(void) {
    const int saved_errno = errno;
    struct thread_cache *cache = lifecycle_attach();
    errno = saved_errno;
    return cache != NULL && cache->researched ? cache : NULL;
}

SLOW_PATH static void *alloc_researched(size_t bytes, size_t alignment, bool zero) {
    struct research_mark mark;
    struct thread_cache *cache = researched_cache();
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

SLOW_PATH static void *alloc_slowest(size_t bytes, size_t alignment, bool zero) {
    // The options are read below, and another thread may be loading them.
    lifecycle_start();
    return likely(option_live(research) == 0) ? alloc_uncounted(bytes, alignment, zero)
                                              : alloc_researched(bytes, alignment, zero);
}

MIDDLE_PATH void *alloc_slow(size_t bytes) {
    if (likely(bytes <= SMALL_BYTES_MAX)) {
        void *block = cache_pop_depot(thread_cache, size_class_index(bytes));
        if (likely(block != NULL)) {
            return block;
        }
    }
    return alloc_slowest(bytes, BLOCK_ALIGN, false);
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

// The power of two from an alignment on, at least malloc's own. At most REQUEST_BYTES_MAX / 2 + 1.
static size_t raised_alignment(size_t alignment) {
    size_t raised = BLOCK_ALIGN;
    while (raised < alignment) {
        raised *= 2;
    }
    return raised;
}

MIDDLE_PATH void *alloc_aligned_slow(size_t alignment, size_t bytes) {
    if (unlikely(alignment > REQUEST_BYTES_MAX / 2 + 1 || bytes > REQUEST_BYTES_MAX)) {
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

// ---- Free ----

// What an address is, by the page map and what it leads to.
struct place {
    enum { PLACE_NONE, PLACE_SMALL, PLACE_LARGE, PLACE_HUGE, PLACE_GUARDED } kind;
    struct run *run;
    struct huge *huge;
    size_t usable_bytes;
};

// PLACE_NONE unless the address is the start of a block that is in use as far as the page map and
// the bitmaps tell (a block in a thread's cache counts as in use).
static struct place find_place(uintptr_t address) {
    struct place place = {PLACE_NONE, NULL, NULL, 0};
    if (address >> ADDRESS_BITS != 0) {
        return place;
    }
    const uint32_t entry = page_map_get(address);
    switch (page_entry_kind(entry)) {
    case PAGE_KIND_LARGE:
        place.run = large_find(address);
        if (place.run != NULL) {
            place.kind = PLACE_LARGE;
            place.usable_bytes = atomic_load_relaxed(&place.run->large_bytes);
        }
        break;
    case PAGE_KIND_HUGE:
        place.huge = huge_find(address);
        if (place.huge != NULL && whole_load(&place.huge->start) == address) {
            place.kind = PLACE_HUGE;
            place.usable_bytes = whole_load(&place.huge->usable_bytes);
        }
        break;
    case PAGE_KIND_GUARDED:
        place.usable_bytes = guarded_block_bytes(address);
        if (place.usable_bytes != 0) {
            place.kind = PLACE_GUARDED;
        }
        break;
    default:
        place.run = entry == PAGE_ENTRY_NONE ? NULL : arena_find_inline(address);
        if (place.run != NULL && run_is_slab(place.run)) {
            place.kind = PLACE_SMALL;
            place.usable_bytes = size_classes[place.run->class_index].block_bytes;
        }
        break;
    }
    return place;
}

static bool is_held_back(const struct run *slab, uintptr_t address) {
    struct heap *heap = atomic_load_relaxed(&((struct run *)(uintptr_t)slab)->heap);
    if (heap == NULL) {
        return true;  // the slab went just now: the block is free
    }
    lock_acquire(&heap->lock);
    const bool found = heap_holds_back(heap, (void *)address);
    lock_release(&heap->lock);
    return found;
}

// As find_place, and the block must not be free as far as the bitmaps and the latest frees of this
// thread tell.
static struct place find_live(uintptr_t address, enum misuse otherwise) {
    struct place place = find_place(address);
    if (place.kind == PLACE_SMALL) {
        const int index = slab_index(place.run, address);
        if (index < 0) {
            place.kind = PLACE_NONE;
        } else if (slab_is_free(place.run, (unsigned)index) ||
                   cache_freed_lately(top_of(thread_cache, place.run->class_index), address) ||
                   (unlikely(options.quarantine_blocks) && is_held_back(place.run, address))) {
            misuse_report_freed(otherwise, place.run, (unsigned)index);
            place.kind = PLACE_NONE;
            return place;
        } else if (unlikely(options.slack_check)) {
            slack_require(place.run, (unsigned)index);
            place.usable_bytes = slab_usable_bytes(place.run, (unsigned)index);
        }
    }
    if (unlikely(place.kind == PLACE_NONE)) {
        misuse_report(otherwise, address);
    }
    return place;
}

// The common case of find_live without its detours: the bytes of the small block in use that starts
// at an address, or 0 for anything else.
static inline size_t live_small_bytes(struct thread_cache *cache, uintptr_t address) {
    // Diverted caches, and the constant ones: all detours are possible.
    if (unlikely(address >> ADDRESS_BITS != 0 || cache_is_diverted(cache))) {
        return 0;
    }
    const struct run *slab = arena_find_inline(address);
    if (unlikely(slab == NULL || !run_is_slab(slab))) {
        return 0;
    }
    const int index = slab_index(slab, address);
    if (unlikely(index < 0 || slab_is_free(slab, (unsigned)index) ||
                 cache_freed_lately(slot_load(cache_class_tops(cache->top), slab->class_index),
                                    address))) {
        return 0;
    }
    return size_classes[slab->class_index].block_bytes;
}

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
        late_free(slab, block);
    } else {
        cache_free_slow(cache, slab, block);
    }
}

static void free_guarded(uintptr_t address) {
    struct guarded_damage damage;
    if (!guarded_free(address, &damage)) {
        misuse_report(MISUSE_INVALID_FREE, address);
    } else if (unlikely(damage.address != 0)) {
        misuse_report(damage.address < address ? MISUSE_UNDERFLOW : MISUSE_OVERFLOW,
                      damage.address);
    }
}

static void free_uncounted(void *block) {
    if (block == NULL) {
        return;
    }
    const int saved_errno = errno;
    struct thread_cache *cache = lifecycle_attach();
    const uintptr_t address = (uintptr_t)block;
    const struct place place = find_place(address);
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
    }
    errno = saved_errno;
}

SLOW_PATH static void free_researched(void *block) {
    struct research_mark mark;
    struct thread_cache *cache = researched_cache();
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
    const bool pushed = cache_push_slow(cache, class_index, block);
    if (likely(pushed)) {
        tick(cache);
    }
    errno = saved_errno;
    return pushed;
}

MIDDLE_PATH void free_slow(void *block) {
    // First: programs free NULL as often as blocks.
    if (block == NULL) {
        return;
    }
    struct thread_cache *cache = thread_cache;
    const uint64_t class_index = cache_class_of(cache, (uintptr_t)block);
    if (class_index >= SIZE_CLASS_COUNT ||
        !(cache_push_depot(cache, class_index, block) || free_full(cache, class_index, block))) {
        free_slowest(block);
    }
}

void hakmem_dealloc(void *block) {
    dealloc(block);
}

// Whether malloc may have made this block of such a request.
static bool size_fits(const struct place *place, size_t alignment, size_t bytes) {
    if (!is_power_of_two(alignment)) {
        alignment = BLOCK_ALIGN;
    }
    if (place->kind == PLACE_GUARDED && alignment <= BLOCK_ALIGN) {
        return place->usable_bytes == (bytes == 0 ? 1 : bytes);
    }
    if (place->kind == PLACE_GUARDED) {
        return alignment <= SMALL_BYTES_MAX && bytes <= SMALL_BYTES_MAX &&
               place->usable_bytes == aligned_block_bytes(bytes, alignment);
    }
    if (is_small(bytes, alignment)) {
        return place->kind == PLACE_SMALL &&
               place->run->class_index == class_for(bytes, alignment) &&
               (!options.slack_check || place->usable_bytes == greatest_u64(bytes, 1));
    }
    // A huge block may have come from a kept mapping that was a little larger.
    const size_t rounded = align_up(bytes == 0 ? 1 : bytes, os_page_bytes());
    return place->kind == PLACE_HUGE ? rounded <= place->usable_bytes
                                     : rounded == place->usable_bytes;
}

SLOW_PATH void free_sized_slow(void *block, size_t alignment, size_t bytes) {
    if (unlikely(options.immediate_double_free) && block != NULL) {
        const struct place place = find_live((uintptr_t)block, MISUSE_INVALID_FREE);
        if (place.kind == PLACE_NONE) {
            return;
        }
        if (!size_fits(&place, alignment, bytes)) {
            misuse_report_size((uintptr_t)block, place.usable_bytes, bytes);
            return;
        }
    }
    free_slow(block);
}

// ---- Size and resize ----

SLOW_PATH static size_t block_bytes_slow(uintptr_t address) {
    if (address == 0) {
        return 0;
    }
    const size_t bytes = live_small_bytes(thread_cache, address);
    if (likely(bytes != 0)) {
        return bytes;
    }
    const struct place place = find_live(address, MISUSE_INVALID_USABLE_SIZE);
    return place.kind == PLACE_NONE ? 0 : place.usable_bytes;
}

// Some programs ask for the size of every block, when they take it and when they free it. Of a slab of one page the page
// map, the size class and the thread's own node tell it; the bitmaps are not asked: the size of a block that went home
// long ago harms nobody (docs/decisions/0052-the-size-of-a-block.md).
size_t hakmem_block_bytes(const void *block) {
    struct thread_cache *cache = thread_cache;
    const uintptr_t address = (uintptr_t)block;
    if (unlikely(address > cache->address_max)) {
        return block_bytes_slow(address);
    }
    const uint64_t kind =
        page_entry_kind(atomic_load_relaxed(&cache->page_map[address >> PAGE_SHIFT]));
    void *const *top = slot_load(cache->top, kind);
    // Of a class without a node, whose blocks go straight home, of a diverted cache and of what is in no slab, too.
    if (unlikely(node_is_full(top))) {
        return block_bytes_slow(address);
    }
    const struct size_class *size_class = &size_classes[kind - PAGE_KIND_SLAB];
    const uint32_t offset = address % PAGE_BYTES;
    const uint32_t index = block_index(offset, size_class->reciprocal);
    if (unlikely(index * size_class->block_bytes != offset || index >= size_class->block_count ||
                 size_class->slab_pages != 1 || cache_freed_lately(top, address))) {
        return block_bytes_slow(address);
    }
    return size_class->block_bytes;
}

// A smaller request stays in its block until it needs less than half.
static bool fits(size_t usable_bytes, size_t bytes) {
    return bytes <= usable_bytes && bytes * 2 > usable_bytes;
}

// Where sizes are checked, the block must be one that malloc would give for the new size.
static bool resize_small(const struct place *place, size_t bytes, uintptr_t address) {
    if (!options.slack_check) {
        const bool stays = fits(place->usable_bytes, bytes) &&
                           (!options.immediate_double_free || size_fits(place, BLOCK_ALIGN, bytes));
        if (stays) {
            research_note_request(place->run, (const void *)address, bytes);
        }
        return stays;
    }
    if (!is_small(bytes, BLOCK_ALIGN) || class_for(bytes, BLOCK_ALIGN) != place->run->class_index) {
        return false;
    }
    slack_resize(place->run, (unsigned)slab_index(place->run, address), bytes);
    return true;
}

// Where the block lies, without copying. Moves a huge block's pages: *block is then new.
static bool resize_in_place(const struct place *place, size_t bytes, void **block) {
    switch (place->kind) {
    case PLACE_SMALL:
        return resize_small(place, bytes, (uintptr_t)*block);
    case PLACE_LARGE:
        return bytes > SMALL_BYTES_MAX && bytes <= LARGE_BYTES_MAX &&
               large_resize(place->run, bytes);
    case PLACE_HUGE:
        if (bytes <= LARGE_BYTES_MAX || !huge_resize(place->huge, bytes)) {
            return false;
        }
        *block = (void *)place->huge->start;
        return true;
    default:
        return false;
    }
}

// A block that outgrows its class by a little is one that grows bit by bit: room for a quarter more halves the
// number of times it is copied on its way.
#define LITTLE_PART 8
#define ROOM_PART 4

static size_t with_room_to_grow(size_t usable_bytes, size_t bytes) {
    const size_t roomy = usable_bytes + usable_bytes / ROOM_PART;
    return bytes > usable_bytes && bytes - usable_bytes <= usable_bytes / LITTLE_PART &&
                   roomy <= SMALL_BYTES_MAX && !options.immediate_double_free &&
                   !options.slack_check
               ? roomy
               : bytes;
}

static void *resize_by_copying(void *block, size_t usable_bytes, size_t bytes) {
    void *moved = alloc(with_room_to_grow(usable_bytes, bytes));
    if (unlikely(moved == NULL)) {
        // A block that was to shrink still serves, unless free_sized would take it for a wrong one.
        return bytes <= usable_bytes && !options.immediate_double_free ? block : NULL;
    }
    __builtin_memcpy(moved, block, bytes < usable_bytes ? bytes : usable_bytes);
    dealloc(block);
    return moved;
}

// A block that is not small, or is not to be had by live_small_bytes().
SLOW_PATH static void *resize_slow(void *block, size_t bytes) {
    const struct place place = find_live((uintptr_t)block, MISUSE_INVALID_REALLOC);
    if (place.kind == PLACE_NONE) {
        errno = EINVAL;
        return NULL;
    }
    if (bytes == 0) {
        dealloc(block);
        return NULL;
    }
    const int saved_errno = errno;
    const bool done = resize_in_place(&place, bytes, &block);
    errno = saved_errno;
    return done ? block : resize_by_copying(block, place.usable_bytes, bytes);
}

void *hakmem_resize(void *block, size_t bytes) {
    if (block == NULL) {
        return alloc(bytes);
    }
    if (unlikely(bytes > REQUEST_BYTES_MAX)) {
        return or_enomem(NULL);
    }
    const size_t usable_bytes = bytes == 0 ? 0 : live_small_bytes(thread_cache, (uintptr_t)block);
    if (unlikely(usable_bytes == 0)) {
        return resize_slow(block, bytes);
    }
    return fits(usable_bytes, bytes) ? block : resize_by_copying(block, usable_bytes, bytes);
}
