// Size classes: which block size serves a request, and the arithmetic from address to block index.
#pragma once

#include "base/base.h"

#define PAGE_SHIFT 16
#define PAGE_BYTES ((size_t)1 << PAGE_SHIFT)
#define SUPERSLAB_SHIFT 22
#define SUPERSLAB_BYTES ((size_t)1 << SUPERSLAB_SHIFT)

#define BLOCK_ALIGN 16
#define SMALL_BYTES_MAX (64 * KIB)

enum {
#define SIZE_CLASS(index, previous, bytes, pages) SIZE_CLASS_##bytes,
#include "space/size_class.def"
#undef SIZE_CLASS
    SIZE_CLASS_COUNT,
};

struct size_class {
    uint32_t block_bytes;
    // ceil(2^31 / (block_bytes / 16)); see block_index().
    uint32_t reciprocal;
    uint16_t block_count;  // blocks of one slab
    uint16_t slab_pages;
};

extern const struct size_class size_classes[SIZE_CLASS_COUNT];

// Class of a request of n bytes, 0 <= n <= SMALL_BYTES_MAX, at [(n + 15) / 16].
extern const uint8_t size_class_of_16[SMALL_BYTES_MAX / 16 + 1];

FAST_PATH uint64_t size_class_index(size_t bytes) {
    return size_class_of_16[(bytes + 15) >> 4];
}

// Smallest class that holds `bytes` at addresses aligned to `alignment` (a power of two, at most
// 64 KiB): slabs start at multiples of 64 KiB, so a block size that is a multiple will do.
// bytes <= SMALL_BYTES_MAX.
static inline uint64_t size_class_aligned(size_t bytes, size_t alignment) {
    uint64_t index = size_class_index(bytes > alignment ? bytes : alignment);
    while ((size_classes[index].block_bytes & (alignment - 1)) != 0) {
        index++;
    }
    return index;
}

// Index of the block that contains byte `offset` of a slab. Exact: with k = block_bytes / 16 and
// r = ceil(2^31 / k), the error of offset/16 * r is below offset/16 * k < 2^15 * 2^12 < 2^31.
// Tested for every class and every offset (tests/unit/test_size_class.c).
static inline uint32_t block_index(uint32_t offset, uint32_t reciprocal) {
    return (uint32_t)(((uint64_t)(offset >> 4) * reciprocal) >> 31);
}
