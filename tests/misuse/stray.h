// Writes outside a block, whose neighbours are blocks of the program as well, so that up to 4 KiB on
// either side belong to the heap.
#pragma once

#include "misuse.h"

enum { NEIGHBOURS = 100 };

struct neighbours {
    unsigned char *blocks[NEIGHBOURS];  // in rising order
    size_t count;
};

static struct neighbours take_neighbours(size_t bytes) {
    struct neighbours taken = {.count = bytes < 64 * KIB ? NEIGHBOURS : 9};
    for (size_t i = 0; i < taken.count; i++) {
        unsigned char *block = (unsigned char *)malloc(bytes);
        require(block != NULL);
        size_t at = i;
        for (; at > 0 && taken.blocks[at - 1] > block; at--) {
            taken.blocks[at] = taken.blocks[at - 1];
        }
        taken.blocks[at] = block;
    }
    return taken;
}

// Of small blocks one in the middle right behind another: an allocator that hands blocks out in random
// order leaves gaps.
static unsigned char *middle(const struct neighbours *taken) {
    ptrdiff_t least = PTRDIFF_MAX;
    for (size_t i = 1; i < taken->count; i++) {
        const ptrdiff_t distance = taken->blocks[i] - taken->blocks[i - 1];
        least = distance < least ? distance : least;
    }
    size_t at = taken->count / 2;
    while (at + 1 < taken->count && taken->blocks[at] - taken->blocks[at - 1] != least) {
        at++;
    }
    about_block(taken->blocks[at], taken->blocks[at]);
    return taken->blocks[at];
}

BEHAVIOUR_UNUSED static void write_behind(const struct neighbours *taken, size_t bytes) {
    unsigned char *block = middle(taken);
    memset((unsigned char *)opaque_pointer(block) + malloc_usable_size(block), 0x41, bytes);
}

BEHAVIOUR_UNUSED static void write_before(const struct neighbours *taken, size_t bytes) {
    unsigned char *block = middle(taken);
    memset((unsigned char *)opaque_pointer(block) - bytes, 0x41, bytes);
}

static void free_neighbours(const struct neighbours *taken) {
    for (size_t i = 0; i < taken->count; i++) {
        free(taken->blocks[i]);
    }
}
