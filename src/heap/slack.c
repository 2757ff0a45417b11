#include "heap/slack.h"

#include "base/bits.h"
#include "heap/misuse.h"
#include "os/os.h"

static uint64_t key;

void slack_start(void) {
    key = os_random();
}

// Eight bytes, each with its highest bit set: the most frequent overflows are a string's end and text.
static uint64_t filler_of(uintptr_t start) {
    uint64_t word = (start ^ key) * UINT64_C(0x9E3779B97F4A7C15);
    word ^= word >> 32;
    return word | UINT64_MAX / 255 * 0x80;
}

// Of the word that contains a byte: the bits from there on.
static uint64_t bits_from(size_t at) {
    return UINT64_MAX << at % sizeof(uint64_t) * 8;
}

static size_t block_bytes_of(const struct run *slab) {
    return size_classes[slab->class_index].block_bytes;
}

static void fill(const struct run *slab, unsigned index, size_t from) {
    const uintptr_t start = slab_block(slab, index);
    const uint64_t filler = filler_of(start);
    uint64_t *words = (uint64_t *)start;
    size_t at = from / sizeof(uint64_t);
    words[at] = (words[at] & ~bits_from(from)) | (filler & bits_from(from));
    while (++at < block_bytes_of(slab) / sizeof(uint64_t)) {
        words[at] = filler;
    }
}

void slack_set(struct run *slab, unsigned index, size_t bytes) {
    // A request of nothing may use a byte, as among guarded blocks.
    const size_t usable_bytes = greatest_u64(bytes, 1);
    atomic_store_relaxed(&slab_requests(slab)[index], (uint16_t)usable_bytes);
    fill(slab, index, usable_bytes);
}

void slack_resize(struct run *slab, unsigned index, size_t bytes) {
    const size_t before = slab_usable_bytes(slab, index);
    slack_set(slab, index, bytes);
    if (bytes > before) {
        __builtin_memset((void *)(slab_block(slab, index) + before), 0, bytes - before);
    }
}

// Offset of the first byte of the slack that was changed, or the block's size.
static size_t first_changed(const struct run *slab, unsigned index) {
    const uintptr_t start = slab_block(slab, index);
    const uint64_t filler = filler_of(start);
    const uint64_t *words = (const uint64_t *)start;
    const size_t from = slab_usable_bytes(slab, index);
    const size_t end = block_bytes_of(slab);
    size_t at = from / sizeof(uint64_t);
    uint64_t changed = (words[at] ^ filler) & bits_from(from);
    while (changed == 0 && ++at < end / sizeof(uint64_t)) {
        changed = words[at] ^ filler;
    }
    return changed == 0 ? end : at * sizeof(uint64_t) + bit_lowest(changed) / 8;
}

void slack_require(struct run *slab, unsigned index) {
    const size_t changed = first_changed(slab, index);
    if (unlikely(changed < block_bytes_of(slab))) {
        misuse_report(MISUSE_OVERFLOW, slab_block(slab, index) + changed);
        fill(slab, index, slab_usable_bytes(slab, index));
    }
}
