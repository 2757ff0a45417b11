// Size classes: which block size serves a request, and the arithmetic from address to block index.
#pragma once

#include "base/base.h"
#include "config/profile.h"

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

// ceil(2^31 / (bytes / 16)).
#define SIZE_CLASS_RECIPROCAL(bytes) \
    ((uint32_t)(((UINT64_C(1) << 31) + (bytes) / 16 - 1) / ((bytes) / 16)))

struct size_class {
    uint32_t block_bytes;
    uint32_t reciprocal;   // see block_index()
    uint16_t block_count;  // blocks of one slab
    uint16_t slab_pages;
};

// The table, on machine pages of its own that nobody can write: it is either size_class.def's, or, from
// before the first allocation on, a profile's, whose classes may be fewer and of other sizes than
// SIZE_CLASS_<bytes> says. Rows behind the last class repeat it, and serve nobody.
#define SIZE_CLASS_TABLE_ALIGN 4096
struct size_class_table {
    // 1 + class of a request of n bytes, 0 <= n <= SMALL_BYTES_MAX, at [(n + 15) / 16]: the fast paths count
    // the classes from 1, as the page map does, where 0 is no class.
    _Alignas(SIZE_CLASS_TABLE_ALIGN) uint8_t number_of_16[SMALL_BYTES_MAX / 16 + 1];
    uint8_t count;  // of classes
    struct size_class rows[SIZE_CLASS_COUNT];
};

// Not declared const, so that no compiler keeps what it has read across the change.
HIDDEN extern struct size_class_table size_class_table;
static struct size_class *const size_classes = size_class_table.rows;

// Takes the table of a profile that has one. NULL, or why it cannot: nothing has changed then. Only
// before the first allocation.
const char *size_class_load(const struct profile *profile);

// The bytes of the block that serves a request of at most SMALL_BYTES_MAX.
uint64_t size_class_block_bytes(uint64_t bytes);

// What size_class_load would make of it: a pure function, for size_class_load and tests. The profile has
// been read by profile_parse().
void size_class_build(struct size_class_table *table, const struct profile *profile);

FAST_PATH uint64_t size_class_number(size_t bytes) {
    return size_class_table.number_of_16[(bytes + 15) >> 4];
}

static inline uint64_t size_class_index(size_t bytes) {
    return size_class_number(bytes) - 1;
}

// Smallest class that holds `bytes` at addresses aligned to `alignment` (a power of two, at most
// 64 KiB): slabs start at multiples of 64 KiB, so a block size that is a multiple will do. The last
// class always does. bytes <= SMALL_BYTES_MAX.
static inline uint64_t size_class_aligned(size_t bytes, size_t alignment) {
    uint64_t index = size_class_index(bytes > alignment ? bytes : alignment);
    while ((size_classes[index].block_bytes & (alignment - 1)) != 0) {
        index++;
    }
    return index;
}

// Index of the block that contains byte `offset` of a slab. Exact: with k = block_bytes / 16 and
// r = ceil(2^31 / k), the error of offset/16 * r is below offset/16 * k < 2^17 * 2^12 < 2^31.
// Tested for every class, and every size and slab that a profile may have
// (tests/unit/test_size_class.c).
static inline uint32_t block_index(uint32_t offset, uint32_t reciprocal) {
    return (uint32_t)(((uint64_t)(offset >> 4) * reciprocal) >> 31);
}
