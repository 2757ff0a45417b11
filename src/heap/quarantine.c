#include "heap/quarantine.h"

#include "base/bits.h"
#include "config/options.h"
#include "heap/misuse.h"
#include "heap/slab.h"
#include "heap/slack.h"

// Larger blocks would make the quarantine of a heap hold tens of megabytes.
#define QUARANTINE_BLOCK_BYTES_MAX (4 * KIB)

// Offset of the first byte that is not zero, or `bytes`, a multiple of 16.
static size_t first_nonzero(const unsigned char *block, size_t bytes) {
    const uint64_t *words = (const uint64_t *)(const void *)block;
    size_t at = 0;
    while (at < bytes && words[at / 8] == 0) {
        at += 8;
    }
    return at < bytes ? at + bit_lowest(words[at / 8]) / 8 : bytes;
}

bool heap_holds_back(const struct heap *heap, const void *block) {
    for (size_t i = 0; heap->quarantine != NULL && i < options.quarantine_blocks; i++) {
        if (atomic_load_relaxed(&heap->quarantine[i]) == block) {
            return true;
        }
    }
    return false;
}

// Takes the block out of its place in the quarantine and puts it back into its slab. It was cleared on
// its way in: a byte that is not zero was written after the free. NULL: the place is empty.
static void release_held_back(struct heap *heap, _Atomic(void *) *place, void *next) {
    unsigned char *block = atomic_load_relaxed(place);
    if (block != NULL && options.zero_on_free) {
        const struct run *slab = slab_find((uintptr_t)block);
        const size_t bytes = slab == NULL ? 0 : size_classes[slab->class_index].block_bytes;
        const size_t changed = first_nonzero(block, bytes);
        if (unlikely(changed != bytes)) {
            misuse_report(MISUSE_WRITE_AFTER_FREE, (uintptr_t)block + changed);
            __builtin_memset(block, 0, bytes);
        }
    }
    atomic_store_relaxed(place, next);
    if (block != NULL) {
        void *const released = block;
        heap_put(heap, &released, 1);
    }
}

void heap_free_checked(struct heap *heap, struct run *slab, void *block) {
    const int index = slab_index(slab, (uintptr_t)block);
    if (index < 0) {
        misuse_report(MISUSE_INVALID_FREE, (uintptr_t)block);
        return;
    }
    if (slab_is_free(slab, (unsigned)index) || heap_holds_back(heap, block)) {
        misuse_report_freed(MISUSE_INVALID_FREE, slab, (unsigned)index);
        return;
    }
    if (unlikely(options.slack_check)) {
        slack_require(slab, (unsigned)index);
    }
    if (options.zero_on_free) {
        __builtin_memset(block, 0, size_classes[slab->class_index].block_bytes);
    }
    if (heap->quarantine != NULL &&
        size_classes[slab->class_index].block_bytes <= QUARANTINE_BLOCK_BYTES_MAX) {
        _Atomic(void *) *place = &heap->quarantine[heap->quarantine_next];
        heap->quarantine_next = (heap->quarantine_next + 1) % (uint32_t)options.quarantine_blocks;
        release_held_back(heap, place, block);
        return;
    }
    heap_put_checked(heap, slab, (unsigned)index);
}

void heap_end_quarantine(struct heap *heap) {
    for (size_t i = 0; heap->quarantine != NULL && i < options.quarantine_blocks; i++) {
        release_held_back(heap, &heap->quarantine[i], NULL);
    }
}
