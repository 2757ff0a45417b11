// The slabs of a heap, by class: which one serves, what becomes of one that empties, and which may change to another class or
// another heap. For heap.c; the rest of what is here others find in heap.h. All functions want the heap's lock.
#pragma once

#include "base/bits.h"
#include "heap/heap_state.h"
#include "heap/slab.h"

void bin_init(struct bin *bin);

// The slab of a class that serves next: one that is in use before one that is empty; or a new one. NULL when the system has
// no memory.
struct run *bin_slab_with_blocks(struct heap *heap, uint64_t class_index);

// A slab that holds no block is about to.
void bin_file_partial(struct heap *heap, struct run *slab);

// The last block of a slab came back: it stays for the next burst, or goes.
void bin_file_empty(struct heap *heap, struct run *slab);

static inline struct bin *bin_of(struct heap *heap, const struct run *slab) {
    return &heap->bins[slab->class_index];
}

static inline bool bin_may_be_spare(const struct run *slab) {
    return slab->page_count == SPARE_PAGES;
}

// An empty slab is one no longer: it is about to hand out its first block, or to go.
static inline void bin_remove_empty(struct heap *heap, const struct run *slab) {
    struct bin *bin = bin_of(heap, slab);
    if (bin->empties == &slab->bin_link) {
        bin->empties = slab->bin_link.next;
    }
    bin->empty_count--;
    heap->spares.count -= bin_may_be_spare(slab);
    heap->spares.low = (uint32_t)least_u64(heap->spares.low, heap->spares.count);
}
