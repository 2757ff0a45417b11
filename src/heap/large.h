// Large blocks: above 64 KiB, up to half a superslab. Each is a run of whole pages, shared by all
// threads under the arena's lock.
#pragma once

#include "space/arena.h"

#define LARGE_BYTES_MAX (SUPERSLAB_BYTES / 2)

// `alignment` is a power of two, at most LARGE_BYTES_MAX; 1 <= bytes <= LARGE_BYTES_MAX. With `zero`
// the block reads as zero: pages known to be zero are not touched. NULL when the system has no
// memory.
void *large_alloc(size_t bytes, size_t alignment, bool zero);

// The run of the large block that starts at `address`, or NULL when none does.
struct run *large_find(uintptr_t address);

// The block at `address`, whose run large_find() gave. False when another thread freed it first.
bool large_free(struct run *run, uintptr_t address);

// Grows or shrinks the block where it lies; false when there is no room, or when it is to be copied so that memory goes back.
bool large_resize(struct run *run, size_t bytes);

// Blocks in use. Takes no lock, and looks at no block.
struct large_totals {
    uint64_t count, bytes;
};
void large_totals(struct large_totals *totals);

// Tells the block its new length, within what its run has: there is no memory for a copy.
void large_keep(struct run *run, size_t bytes);
