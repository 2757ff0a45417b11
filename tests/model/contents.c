#include "contents.h"

#define EDGE_BYTES ((size_t)256)

// A word that depends on the block and the offset.
static uint64_t word_at(const struct block *block, size_t offset) {
    return (block->key + offset) * 0x9e3779b97f4a7c15u;
}

static void fill_range(const struct block *block, size_t from, size_t to) {
    size_t at = from;
    for (; at + 8 <= to; at += 8) {
        uint64_t word = word_at(block, at);
        memcpy(block->start + at, &word, 8);
    }
    for (uint64_t word = word_at(block, at); at < to; at++) {
        block->start[at] = (unsigned char)word;
        word >>= 8;
    }
}

// First wrong offset, or `to`.
static size_t check_range(const struct block *block, size_t from, size_t to) {
    size_t at = from;
    for (; at + 8 <= to; at += 8) {
        uint64_t word = word_at(block, at);
        if (memcmp(block->start + at, &word, 8) != 0) {
            return at;
        }
    }
    for (uint64_t word = word_at(block, at); at < to; at++) {
        if (block->start[at] != (unsigned char)word) {
            return at;
        }
        word >>= 8;
    }
    return to;
}

void contents_fill(const struct block *block) {
    size_t usable = block->usable;
    if (usable <= CONTENTS_FULL_BYTES) {
        fill_range(block, 0, usable);
        return;
    }
    fill_range(block, 0, EDGE_BYTES);
    for (size_t at = KIB; at + 8 < usable - EDGE_BYTES; at += KIB) {
        fill_range(block, at, at + 8);
    }
    fill_range(block, (usable - EDGE_BYTES) & ~(size_t)7, usable);
}

// First wrong offset of what contents_fill() wrote below `limit`, or SIZE_MAX.
static size_t first_wrong(const struct block *block, size_t limit) {
    size_t usable = block->usable;
    if (usable <= CONTENTS_FULL_BYTES) {
        size_t end = limit < usable ? limit : usable;
        // Whole words only when cut short: the tail of contents_fill() started elsewhere.
        end = end < usable ? end & ~(size_t)7 : end;
        size_t at = check_range(block, 0, end);
        return at < end ? at : SIZE_MAX;
    }
    size_t head = limit < EDGE_BYTES ? limit & ~(size_t)7 : EDGE_BYTES;
    size_t at = check_range(block, 0, head);
    if (at < head) {
        return at;
    }
    for (at = KIB; at + 8 < usable - EDGE_BYTES && at + 8 <= limit; at += KIB) {
        if (check_range(block, at, at + 8) != at + 8) {
            return at;
        }
    }
    if (limit >= usable) {
        size_t tail = (usable - EDGE_BYTES) & ~(size_t)7;
        at = check_range(block, tail, usable);
        if (at < usable) {
            return at;
        }
    }
    return SIZE_MAX;
}

size_t contents_wrong(const struct block *block) {
    return first_wrong(block, block->usable);
}

size_t contents_kept_wrong(const struct block *block, size_t kept) {
    const size_t limit = block->usable < kept ? block->usable : kept;
    size_t wrong = first_wrong(block, limit);
    if (wrong == SIZE_MAX && block->bytes <= kept && block->usable > kept &&
        block->usable <= CONTENTS_FULL_BYTES) {
        // The cut was inside a word: the request's own last bytes still count.
        const size_t whole = limit & ~(size_t)7;
        const uint64_t word = word_at(block, whole);
        if (memcmp(block->start + whole, &word, limit & 7) != 0) {
            wrong = whole;
        }
    }
    return wrong;
}
