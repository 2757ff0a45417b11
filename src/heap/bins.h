// The slabs of a heap, by class: which one serves, what becomes of one that empties, and which may change to another class or
// another heap. What begins with bin_ is heap.c's. All functions want the heap's lock.
#pragma once

#include "base/bits.h"
#include "heap/heap_state.h"
#include "heap/slab.h"

// The slab of a class that serves next: the first of those that hold a block, or a new one. NULL when the system has no memory.
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

// The slab leaves the partial ones, or changes its place among them.
static inline void bin_unlink(struct heap *heap, struct run *slab) {
    if (unlikely(heap->round.walk.link == &slab->bin_link)) {
        heap->round.walk.link = slab->bin_link.next;
    }
    if (unlikely(heap->excess_walk.link == &slab->bin_link)) {
        heap->excess_walk.link = slab->bin_link.next;
    }
    list_remove(&slab->bin_link);
}

// Whether the slab that serves next is in use.
static inline bool bin_has_begun_slab(const struct bin *bin) {
    return !list_is_empty(&bin->partial) &&
           !slab_is_empty(CONTAINER_OF(bin->partial.next, struct run, bin_link));
}

// An empty slab is one no longer: it is about to hand out its first block, or to go.
static inline void bin_remove_empty(struct heap *heap, const struct run *slab) {
    bin_of(heap, slab)->empty_count--;
    heap->spares.count -= bin_may_be_spare(slab);
    heap->spares.low = (uint32_t)least_u64(heap->spares.low, heap->spares.count);
}

// Whether the heap has blocks of the class without making a slab.
bool heap_has_blocks(const struct heap *heap, uint64_t class_index);

// Whether the next block of the class is the first one of a slab: of a new one, or of a spare one, which would be new if it had not
// stayed.
static inline bool heap_wants_slab(const struct heap *heap, uint64_t class_index) {
    const struct bin *bin = &heap->bins[class_index];
    return list_is_empty(&bin->partial) ||
           (unlikely(heap->spares.most != 0) && !bin_has_begun_slab(bin));
}

// Makes a slab of the class, which has none with blocks, of a spare one of another class. False when there is none.
bool heap_use_spare(struct heap *heap, uint64_t class_index);

// Gives up the empty slabs of which none is to be kept, as far as the budget goes.
void heap_release_unkept(struct heap *heap);

// A decay interval is over: gives up spare slabs that it did without, and empty ones of which none is to be kept, as many as one call does:
// the next slow paths of the heap's thread go on (heap->overfull).
void heap_decay_spares(struct heap *heap);

// Moves a slab of the class that holds a fair part of its blocks from one heap to another; both locks are
// held. False when there is none.
bool heap_move_slab(struct heap *from, struct heap *to, uint64_t class_index);

// Destroys empty slabs, spare ones too, as far as the budget goes. `keeps_retained`: but for those that classes keep in any case.
void heap_release_empty(struct heap *heap, bool keeps_retained);
