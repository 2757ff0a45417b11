// Contents that belong to one block: every word depends on the block's key and on its place, so that
// bytes of another block, or moved bytes, do not match.
#pragma once

#include "behaviour.h"

// Blocks above this are not filled to the last byte each time: their ends and one word per KiB.
#define CONTENTS_FULL_BYTES ((size_t)16 * KIB)

struct block {
    unsigned char *start;
    size_t bytes;   // of the request
    size_t usable;  // all of it is filled
    uint64_t key;
};

void contents_fill(const struct block *block);

// The first offset that is not as contents_fill() wrote it, or SIZE_MAX.
size_t contents_wrong(const struct block *block);

// The same below `kept`, where the block was resized to that many bytes: `start` is where it lies now,
// the rest as it was.
size_t contents_kept_wrong(const struct block *block, size_t kept);
