// The size of a block, and what it becomes when the program wants another size.
#include "api/alloc.h"

#include <errno.h>

#include "api/place.h"
#include "api/request.h"
#include "heap/huge.h"
#include "heap/large.h"
#include "heap/slack.h"
#include "thread/fork.h"
#include "thread/research.h"

// ---- Which block it is ----

// A block of a slab of one page, of a class for which the thread has a node: what nearly all are.
struct page_block {
    const struct size_class *size_class;  // NULL: another one, or the start of no block
    const struct run *slab;
    uint64_t class_index;
    void *const *top;  // of the class's node
    uint32_t index;    // of the block in its slab
};

// By the page map and the size class: whether the block is in use they do not tell.
FAST_PATH struct page_block page_block_find(const struct thread_cache *cache, uintptr_t address) {
    const struct page_block none = {0};
    if (unlikely(address > cache->address_max)) {
        return none;
    }
    const uint64_t entry = atomic_load_relaxed(&cache->page_map[address >> PAGE_SHIFT]);
    const uint64_t kind = page_entry_kind(entry);
    void *const *top = slot_load(cache->top, kind);
    // Full, or none at all: of a class whose blocks go straight home, of a diverted cache, of what is in no slab.
    if (unlikely(node_is_full(top))) {
        return none;
    }
    const struct size_class *size_class = &size_classes[kind - PAGE_KIND_SLAB];
    const uint32_t offset = address % PAGE_BYTES;
    const uint32_t index = block_index(offset, size_class->reciprocal);
    if (unlikely(index * size_class->block_bytes != offset || index >= size_class->block_count ||
                 size_class->slab_pages != 1)) {
        return none;
    }
    return (struct page_block){size_class, page_entry_run(entry), kind - PAGE_KIND_SLAB, top,
                               index};
}

// Whether the block is in use as far as its slab's bitmaps and the thread's last frees tell.
FAST_PATH bool page_block_is_live(const struct page_block *block, uintptr_t address) {
    // Of a block in use the slab is of the class; another may have come in its place since the entry was read.
    return likely(block->slab->class_index == block->class_index &&
                  !slab_is_free(block->slab, block->index)) &&
           !cache_freed_lately(block->top, address);
}

// The common case of place_find_live without its detours: the bytes of the small block in use that starts
// at an address, or 0 for anything else.
static inline size_t live_small_bytes(struct thread_cache *cache, uintptr_t address) {
    // Diverted caches, and the constant ones: all detours are possible.
    if (unlikely(address >> ADDRESS_BITS != 0 || cache_is_diverted(cache))) {
        return 0;
    }
    const struct run *slab = slab_find(address);
    if (unlikely(slab == NULL)) {
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

// ---- Size ----

SLOW_PATH static size_t block_bytes_slow(uintptr_t address) {
    if (address == 0) {
        return 0;
    }
    const size_t bytes = live_small_bytes(thread_cache, address);
    if (likely(bytes != 0)) {
        return bytes;
    }
    const struct place place = place_find_live(address, MISUSE_INVALID_USABLE_SIZE);
    return place.kind == PLACE_NONE ? 0 : place.usable_bytes;
}

// Some programs ask for the size of every block, when they take it and when they free it. Of a slab of one page the page
// map, the size class and the thread's own node tell it; the bitmaps are not asked: the size of a block that went home
// long ago harms nobody (docs/decisions/0052-the-size-of-a-block.md).
size_t hakmem_block_bytes(const void *block) {
    const uintptr_t address = (uintptr_t)block;
    const struct page_block found = page_block_find(thread_cache, address);
    if (unlikely(found.size_class == NULL || cache_freed_lately(found.top, address))) {
        return block_bytes_slow(address);
    }
    return found.size_class->block_bytes;
}

// ---- Resize ----

// Whether no smaller block would serve: of the smallest class it is so for less than half of it.
static bool is_least(size_t usable_bytes, size_t bytes) {
    return usable_bytes <= SMALL_BYTES_MAX &&
           size_classes[size_class_index(bytes)].block_bytes == usable_bytes;
}

// A smaller request stays in its block until it needs less than half.
static bool fits(size_t usable_bytes, size_t bytes) {
    return bytes <= usable_bytes &&
           (likely(bytes * 2 > usable_bytes) || is_least(usable_bytes, bytes));
}

// Where sizes are checked, the block must be one that malloc would give for the new size.
static bool resize_small(const struct place *place, size_t bytes, uintptr_t address) {
    if (!options.slack_check) {
        const bool stays =
            fits(place->usable_bytes, bytes) &&
            (!options.immediate_double_free || place_fits(place, BLOCK_ALIGN, bytes));
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

// Whether somebody takes what is asked for by its length: the fences behind sampled blocks, the checks of what lies behind
// a block, and who records requests.
static bool is_length_kept(void) {
    return options.slack_check || options.guard_sample != 0 || slab_keeps_requests();
}

static size_t with_room_to_grow(size_t usable_bytes, size_t bytes) {
    const size_t roomy = usable_bytes + usable_bytes / ROOM_PART;
    return bytes > usable_bytes && bytes - usable_bytes <= usable_bytes / LITTLE_PART &&
                   roomy <= SMALL_BYTES_MAX && !options.immediate_double_free && !is_length_kept()
               ? roomy
               : bytes;
}

// Whether a block that was to shrink still serves: not if free_sized would take it for a wrong one.
static bool may_keep(const struct place *place, size_t usable_bytes, size_t bytes) {
    return bytes <= usable_bytes && (!options.immediate_double_free ||
                                     (place->kind != PLACE_SMALL && place->kind != PLACE_GUARDED &&
                                      !is_small(bytes, BLOCK_ALIGN)));
}

// Of a large block, which may have kept more than it was told when it shrank.
static bool has_room(const struct place *place, size_t bytes) {
    return place->kind == PLACE_LARGE && !is_small(bytes, BLOCK_ALIGN) &&
           bytes <= place->run->page_count * PAGE_BYTES;
}

// Of what a block had outgrown; see fork_registrar.
static inline void free_outgrown(void *block) {
    if (likely(!fork_is_registering())) {
        dealloc(block);
    }
}

// There is no memory for a copy. What was given back for it in vain may be enough to lengthen a huge block, which wants less.
SLOW_PATH static void *resize_refused(void *block, size_t usable_bytes, size_t bytes) {
    const struct place place = place_find((uintptr_t)block);
    if (has_room(&place, bytes)) {
        large_keep(place.run, bytes);
        return block;
    }
    if (may_keep(&place, usable_bytes, bytes)) {
        return block;
    }
    const int saved_errno = errno;
    const bool done = place.kind == PLACE_HUGE && resize_in_place(&place, bytes, &block);
    errno = saved_errno;
    if (done) {
        return block;
    }
    // Without the room, or for the error.
    void *moved = alloc_slow(bytes);
    if (moved != NULL) {
        __builtin_memcpy(moved, block, bytes < usable_bytes ? bytes : usable_bytes);
        free_outgrown(block);
    }
    return moved;
}

static void *resize_by_copying(void *block, size_t usable_bytes, size_t bytes) {
    const size_t roomy = with_room_to_grow(usable_bytes, bytes);
    void *moved = alloc_hit(roomy);
    moved = likely(moved != NULL) ? moved : alloc_attempt(roomy);
    if (unlikely(moved == NULL)) {
        return resize_refused(block, usable_bytes, bytes);
    }
    __builtin_memcpy(moved, block, bytes < usable_bytes ? bytes : usable_bytes);
    free_outgrown(block);
    return moved;
}

// A block that is not small, one that looks free, or one that is not to be had by live_small_bytes().
SLOW_PATH static void *resize_slowest(void *block, size_t bytes) {
    const struct place place = place_find_live((uintptr_t)block, MISUSE_INVALID_REALLOC);
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
    if (done && place.kind != PLACE_SMALL) {
        alloc_resized();
    }
    errno = saved_errno;
    return done ? block : resize_by_copying(block, place.usable_bytes, bytes);
}

static void *resize_live(void *block, size_t usable_bytes, size_t bytes) {
    return fits(usable_bytes, bytes) ? block : resize_by_copying(block, usable_bytes, bytes);
}

MIDDLE_PATH static void *resize_slow(void *block, size_t bytes) {
    const size_t usable_bytes = bytes == 0 ? 0 : live_small_bytes(thread_cache, (uintptr_t)block);
    return likely(usable_bytes != 0) ? resize_live(block, usable_bytes, bytes)
                                     : resize_slowest(block, bytes);
}

void *hakmem_resize(void *block, size_t bytes) {
    if (block == NULL) {
        return alloc(bytes);
    }
    if (unlikely(bytes > REQUEST_BYTES_MAX)) {
        return alloc_slow(bytes);  // fails
    }
    const uintptr_t address = (uintptr_t)block;
    const struct page_block found = page_block_find(thread_cache, address);
    if (unlikely(found.size_class == NULL || bytes == 0)) {
        return resize_slow(block, bytes);
    }
    return likely(page_block_is_live(&found, address))
               ? resize_live(block, found.size_class->block_bytes, bytes)
               : resize_slowest(block, bytes);
}
