// Memory for hakmem's own structures: bitmaps, descriptors, thread caches. It never touches the
// heap's pages and is never given back to the system; a freed piece serves the next of its size.
#pragma once

#include "base/base.h"

// Zeroed. `bytes` is rounded up to 64; the result is aligned to the largest power of two that
// divides the rounded size (at most 4 KiB). NULL when the system has no memory.
void *metadata_alloc(size_t bytes);

// `bytes` as given to metadata_alloc().
void metadata_free(void *piece, size_t bytes);

// Bytes handed out so far, freed pieces included: an upper bound of what is resident.
uint64_t metadata_bytes(void);

// Number of violated invariants.
size_t metadata_check(void);

void metadata_fork_lock(void);
void metadata_fork_unlock(void);
