// Which block serves a request, as far as bytes and alignment tell.
#pragma once

#include "config/options.h"
#include "space/size_class.h"

// Sizes above this are refused, as by glibc: differences of pointers must fit ptrdiff_t.
#define REQUEST_BYTES_MAX ((size_t)PTRDIFF_MAX)

// Larger alignments are refused.
#define ALIGNMENT_MAX (REQUEST_BYTES_MAX / 2 + 1)

// The power of two from an alignment on, at least malloc's own. At most ALIGNMENT_MAX.
static inline size_t raised_alignment(size_t alignment) {
    size_t raised = BLOCK_ALIGN;
    while (raised < alignment) {
        raised *= 2;
    }
    return raised;
}

// Whether a small block serves. With slack_check it is to be larger than the request.
static inline bool is_small(size_t bytes, size_t alignment) {
    return bytes <= SMALL_BYTES_MAX - options.slack_check && alignment <= SMALL_BYTES_MAX;
}

// is_small(bytes, alignment).
static inline uint64_t class_for(size_t bytes, size_t alignment) {
    return alignment <= BLOCK_ALIGN ? size_class_index(bytes + options.slack_check)
                                    : size_class_aligned(bytes + options.slack_check, alignment);
}

// Bytes of the block that serves an aligned request where nothing is told of the alignment: of that
// size all are aligned. Both at most SMALL_BYTES_MAX.
static inline size_t aligned_block_bytes(size_t bytes, size_t alignment) {
    return size_classes[size_class_aligned(bytes, alignment)].block_bytes;
}
