// Memory for hakmem's own structures: bitmaps, descriptors, thread caches. It never touches the
// heap's pages and is never given back to the system; a freed piece serves the next of its size and use.
#pragma once

#include "base/atomic.h"
#include "base/base.h"
#include "os/lock.h"

#define RECYCLED_UNITS_MAX 256

// Bitmaps of slabs are apart: where a block is freed twice while its slab goes, a thread may still set a bit in them.
enum metadata_use { METADATA_STRUCTURES, METADATA_BITMAPS, METADATA_USE_COUNT };

struct free_piece {
    struct free_piece *next;
};

// What a mapping of pieces begins with.
struct metadata_chunk {
    struct metadata_chunk *next;  // the one mapped before
    size_t bytes;                 // of the mapping, this header included
};

// All of it. Used in metadata.c alone.
struct metadata {
    struct lock lock;
    char *fresh, *fresh_end;
    // Every mapping there is. Release when a header is complete, acquire by whoever walks them.
    _Atomic(struct metadata_chunk *) chunks;
    struct free_piece *recycled[METADATA_USE_COUNT][RECYCLED_UNITS_MAX + 1];
    // Relaxed: written under the lock, read by statistics at any time; pairs with nothing.
    _Atomic(uint64_t) bytes;
};
extern struct metadata metadata_state;  // for control/inspect.c

// Zeroed. `bytes` is rounded up to 64; the result is aligned to the largest power of two that
// divides the rounded size (at most 4 KiB). NULL when the system has no memory.
void *metadata_alloc(size_t bytes);

// `bytes` as given to metadata_alloc().
void metadata_free(void *piece, size_t bytes);

// The same for the bitmaps of a slab: a piece of them never becomes anything else.
void *metadata_alloc_bitmaps(size_t bytes);
void metadata_free_bitmaps(void *piece, size_t bytes);

// Bytes handed out so far, freed pieces included: an upper bound of what is resident.
uint64_t metadata_bytes(void);

// The mappings, linked by `next`, the latest first. Any thread, at any time, signal handlers included.
const struct metadata_chunk *metadata_chunks(void);

// Number of violated invariants.
size_t metadata_check(void);

void metadata_fork_lock(void);
void metadata_fork_unlock(void);
