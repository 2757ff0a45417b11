// Memory for hakmem's own structures: bitmaps, descriptors, thread caches. It never touches the
// heap's pages and is never given back to the system; a freed piece serves the next of its size and use.
#pragma once

#include "base/atomic.h"
#include "base/base.h"
#include "os/lock.h"

#define RECYCLED_UNITS_MAX 256

// Of a piece of metadata_take_aligned(), and what its address is a multiple of. Freed ones come and go in batches.
#define METADATA_ALIGNED_BYTES 512
#define METADATA_ALIGNED_BATCH 8
#define METADATA_ALIGNED_UNITS (METADATA_ALIGNED_BYTES / CACHE_LINE_BYTES)

// Bitmaps of slabs are apart: where a block is freed twice while its slab goes, a thread may still set a bit in them.
enum metadata_use { METADATA_STRUCTURES, METADATA_BITMAPS, METADATA_USE_COUNT };

struct free_piece {
    struct free_piece *next;
};

// The first of METADATA_ALIGNED_BATCH freed aligned pieces: who takes or gives them touches no line of the others.
struct free_batch {
    struct free_piece *next;  // piece of the batch
    struct free_batch *next_batch;
};

// What a mapping of pieces begins with.
struct metadata_chunk {
    struct metadata_chunk *next;  // the one mapped before
    size_t bytes;                 // of the mapping, this header included
};

// All of it. Changed in metadata.c alone; snapshots look at its lock.
struct metadata {
    struct lock lock;
    char *fresh, *fresh_end;
    // Before aligned pieces, and behind those that end within a pair of cache lines: never in use so far, by length; those of
    // more than one line begin with a pair. Bit n: list n is not empty.
    struct free_piece *gaps[METADATA_ALIGNED_UNITS];
    uint32_t gap_lengths;
    struct free_batch *recycled_aligned;
    // Every mapping there is. Release when a header is complete, acquire by whoever walks them.
    _Atomic(struct metadata_chunk *) chunks;
    // Relaxed: written under the lock, read by statistics at any time; pairs with nothing.
    _Atomic(uint64_t) bytes;
    // Last: of the longest pieces it is on a page that few processes touch.
    struct free_piece *recycled[METADATA_USE_COUNT][RECYCLED_UNITS_MAX + 1];
};
HIDDEN extern struct metadata metadata_state;  // for control/inspect.c

// Zeroed, at a multiple of 64, of 128 where it is longer than 64. `bytes` is rounded up to a multiple of 64. NULL when the
// system has no memory.
void *metadata_alloc(size_t bytes);

// `bytes` as given to metadata_alloc().
void metadata_free(void *piece, size_t bytes);

// The same for the bitmaps of a slab: a piece of them never becomes anything else.
void *metadata_alloc_bitmaps(size_t bytes);
void metadata_free_bitmaps(void *piece, size_t bytes);

// Pieces of METADATA_ALIGNED_BYTES, at a multiple of as much, linked by their first words, the last one's NULL: a batch that was given back,
// not cleared, or, where there is none, a single new one. `count`: how many. NULL when the system has no memory.
void *metadata_take_aligned(unsigned *count);

// Gives back METADATA_ALIGNED_BATCH pieces, linked likewise.
void metadata_give_aligned(void *first);

// Bytes handed out so far, freed pieces and gaps between pieces included: as much as may be resident, to the machine's
// next page in each mapping.
uint64_t metadata_bytes(void);

// The mappings, linked by `next`, the latest first. Any thread, at any time, signal handlers included.
const struct metadata_chunk *metadata_chunks(void);

// Number of violated invariants.
size_t metadata_check(void);

void metadata_fork_lock(void);
void metadata_fork_unlock(void);
