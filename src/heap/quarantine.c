#include "heap/quarantine.h"

#include "base/bits.h"
#include "config/options.h"
#include "heap/misuse.h"
#include "heap/slab.h"
#include "heap/slack.h"

// Larger blocks would make the quarantine of a heap hold tens of megabytes.
#define QUARANTINE_BLOCK_BYTES_MAX (4 * KIB)

// Offset of the first byte that is not zero, or `bytes`, a multiple of BLOCK_ALIGN.
static size_t first_nonzero(const unsigned char *block, size_t bytes) {
    const uint64_t *words = (const uint64_t *)(const void *)block;
    // Without a branch for each word: nearly always all of them are zero.
    uint64_t even = 0;
    uint64_t odd = 0;
    for (size_t i = 0; i < bytes / sizeof(uint64_t); i += 2) {
        even |= words[i];
        odd |= words[i + 1];
    }
    if (likely((even | odd) == 0)) {
        return bytes;
    }
    size_t at = 0;
    while (words[at] == 0) {
        at++;
    }
    return at * sizeof(uint64_t) + bit_lowest(words[at]) / 8;
}

static void set_quarantined(struct run *slab, unsigned index, bool held_back) {
    _Atomic(uint64_t) *word = &slab_quarantined(slab)[index / 64];
    const uint64_t others = atomic_load_relaxed(word) & ~bit(index % 64);
    atomic_store_relaxed(word, others | (uint64_t)held_back << index % 64);
}

// Takes the block out of its place in the quarantine and puts it back into its slab. It was cleared on
// its way in: a byte that is not zero was written after the free. NULL: the place is empty.
static void release(struct heap *heap, _Atomic(void *) *place, void *next) {
    unsigned char *block = atomic_load_relaxed(place);
    atomic_store_relaxed(place, next);
    if (block == NULL) {
        return;
    }
    struct run *slab = slab_find((uintptr_t)block);
    const unsigned index = (unsigned)slab_index(slab, (uintptr_t)block);
    if (options.zero_on_free) {
        const size_t bytes = size_classes[slab->class_index].block_bytes;
        const size_t changed = first_nonzero(block, bytes);
        if (unlikely(changed != bytes)) {
            misuse_report(MISUSE_WRITE_AFTER_FREE, (uintptr_t)block + changed);
            __builtin_memset(block, 0, bytes);
        }
    }
    set_quarantined(slab, index, false);
    heap_put_checked(heap, slab, index);
}

void heap_free_checked(struct heap *heap, struct run *slab, void *block) {
    const int index = slab_index(slab, (uintptr_t)block);
    if (index < 0) {
        misuse_report(MISUSE_INVALID_FREE, (uintptr_t)block);
        return;
    }
    if (slab_is_free(slab, (unsigned)index) || slab_is_quarantined(slab, (unsigned)index)) {
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
        set_quarantined(slab, (unsigned)index, true);
        release(heap, place, block);
        return;
    }
    heap_put_checked(heap, slab, (unsigned)index);
}

void heap_end_quarantine(struct heap *heap) {
    for (size_t i = 0; heap->quarantine != NULL && i < options.quarantine_blocks; i++) {
        release(heap, &heap->quarantine[i], NULL);
    }
}
