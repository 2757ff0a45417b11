// What a heap's slabs amount to, and whether they are as they must be. Under the heap's lock.
#pragma once

#include "heap/heap.h"

struct heap_class_totals {
    uint64_t slab_bytes, used_blocks, free_blocks;
};

// Does not look at slabs: a heap may have very many, and its threads wait meanwhile.
void heap_class_totals(const struct heap *heap, uint64_t class_index,
                       struct heap_class_totals *totals);

// Adds to counts[], one for each size class, the blocks that the program has freed and that are among the used ones still: on their way
// back from other threads, of this heap's slabs or of some that were, and in the quarantine.
void heap_count_returning(const struct heap *heap, uint64_t *counts);

// Number of violated invariants.
size_t heap_check(const struct heap *heap);
