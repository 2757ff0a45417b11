#include "heap/slack.h"

#include "base/bits.h"
#include "heap/misuse.h"
#include "os/os.h"

static uint64_t key;

void slack_start(void) {
    if (options.slack_check) {
        key = os_random();
    }
}

// Never zero: the most frequent overflow is a string's end.
static unsigned char filler_of(uintptr_t start) {
    const unsigned char byte = (unsigned char)((start ^ key) * UINT64_C(0x9E3779B97F4A7C15) >> 56);
    return byte == 0 ? 0xA5 : byte;
}

static size_t block_bytes_of(const struct run *slab) {
    return size_classes[slab->class_index].block_bytes;
}

static void fill(const struct run *slab, unsigned index, size_t from) {
    const uintptr_t start = slab_block(slab, index);
    __builtin_memset((void *)(start + from), filler_of(start), block_bytes_of(slab) - from);
}

void slack_set(struct run *slab, unsigned index, size_t bytes) {
    // A request of nothing may use a byte, as among guarded blocks.
    const size_t usable_bytes = greatest_u64(bytes, 1);
    atomic_store_relaxed(&slab_requests(slab)[index], (uint16_t)usable_bytes);
    fill(slab, index, usable_bytes);
}

void slack_resize(struct run *slab, unsigned index, size_t bytes) {
    const size_t before = slack_usable_bytes(slab, index);
    slack_set(slab, index, bytes);
    if (bytes > before) {
        __builtin_memset((void *)(slab_block(slab, index) + before), 0, bytes - before);
    }
}

// Offset of the first byte of the slack that was changed, or the block's size.
static size_t first_changed(const struct run *slab, unsigned index) {
    const uintptr_t start = slab_block(slab, index);
    const unsigned char *block = (const unsigned char *)start;
    const unsigned char filler = filler_of(start);
    const size_t end = block_bytes_of(slab);
    size_t at = slack_usable_bytes(slab, index);
    while (at % sizeof(uint64_t) != 0 && block[at] == filler) {
        at++;
    }
    if (at % sizeof(uint64_t) != 0) {
        return at;
    }
    const uint64_t *words = (const uint64_t *)start;
    const uint64_t expected = filler * (UINT64_MAX / 255);
    while (at < end && words[at / 8] == expected) {
        at += sizeof(uint64_t);
    }
    return at < end ? at + bit_lowest(words[at / 8] ^ expected) / 8 : end;
}

void slack_require(struct run *slab, unsigned index) {
    const size_t changed = first_changed(slab, index);
    if (unlikely(changed < block_bytes_of(slab))) {
        misuse_report(MISUSE_OVERFLOW, slab_block(slab, index) + changed);
        fill(slab, index, slack_usable_bytes(slab, index));
    }
}
