// A slab: a run of pages cut into blocks of one size class, with one bit per block out of band.
//
// Bit set in free_bits: the slab holds the block. Bit clear: the block is in a thread's cache, in
// the program's hands, or on its way back through remote_bits. No word of a free block is ever
// read or written, so nothing in it can be corrupted, and its page can be purged.
//
// Two tiers: bit w of `summary` is set exactly when word w of free_bits is not zero, so the lowest
// free block is two bit scans away in any slab.
//
// With the options slack_check (heap/slack.h) and request_sizes (thread/research.h) the size that was asked
// for is kept as well, two bytes a block, with quarantine_blocks a bit a block that tells which are held back. All lie in one
// piece of metadata: free_bits, remote_bits, requests, quarantined.
//
// All functions that change a slab want the heap's lock.
#pragma once

#include "base/bits.h"
#include "config/options.h"
#include "space/arena.h"
#include "space/size_class.h"

// NULL when the system has no memory. The slab holds all its blocks and is on no list.
struct run *slab_create(struct heap *heap, uint32_t heap_id, uint64_t class_index);

// The slab must hold all its blocks and be on no list.
void slab_destroy(struct run *slab);

// Turns such a slab into one of another class that has as many pages. NULL when the system has no memory for its bitmaps: the run
// went back to the arena then.
struct run *slab_remake(struct run *slab, struct heap *heap, uint32_t heap_id,
                        uint64_t class_index);

// Words of bitmaps, each of 64 neighbouring blocks, that a refill touches in a slab, and stretches that a flush puts back: one costs as
// much as several blocks of it, and a call that touches many takes long (docs/decisions/0056-few-words-at-a-time.md).
#define WORDS_FEW 2

// Takes up to `want` blocks of the first WORDS_FEW words that have any, those with the lowest addresses, into blocks[], the highest
// address first. Returns how many: none where the slab holds none.
unsigned slab_take(struct run *slab, unsigned want, void **blocks);

// Takes one block chosen at random. The slab must hold at least one.
void *slab_take_random(struct run *slab, uint64_t *random_state);

// The slab that contains an address below 2^ADDRESS_BITS, or NULL. Exact for an address in a block in use; for any other
// address the answer is a claim to check.
static inline struct run *slab_find(uintptr_t address) {
    const uint64_t entry = page_map_get(address);
    return likely(page_entry_class(entry) < SIZE_CLASS_COUNT) ? page_entry_run(entry) : NULL;
}

// Index of the block that starts at `address` (within the slab's pages), or -1 when none does.
static inline int slab_index(const struct run *slab, uintptr_t address) {
    const struct size_class *size_class = &size_classes[slab->class_index];
    const uint32_t offset = (uint32_t)(address - slab->start);
    const uint32_t index = block_index(offset, size_class->reciprocal);
    return index * size_class->block_bytes == offset && index < slab->block_count ? (int)index : -1;
}

static inline unsigned slab_words(const struct run *slab) {
    return (slab->block_count + 63u) / 64u;
}

// Blocks of a word of the bitmaps: 64, but in the last one.
static inline unsigned slab_word_count(const struct run *slab, unsigned word) {
    const unsigned left = slab->block_count - word * 64u;
    return left < 64 ? left : 64;
}

// The bits of a word that stand for blocks: all but those behind the last one.
static inline uint64_t slab_word_blocks(const struct run *slab, unsigned word) {
    return bit_range(0, slab_word_count(slab, word));
}

// Bytes of a bitmap in metadata: each begins on a cache line of its own, but for those of at most half a line, which
// share one: a slab of so few blocks would have as much metadata for nothing again.
static inline size_t slab_bitmap_bytes(unsigned words) {
    const size_t bytes = words * sizeof(uint64_t);
    return bytes <= CACHE_LINE_BYTES / 2 ? CACHE_LINE_BYTES / 2 : align_up(bytes, CACHE_LINE_BYTES);
}

static inline bool slab_keeps_requests(void) {
    return (options.slack_check | options.request_sizes) != 0;
}

// If slab_keeps_requests(): the size each block in use was asked for, of a free one the last; 0: not known.
// Relaxed: the block's owner writes; whoever is told of the block, and messages, read. Pairs with nothing.
static inline _Atomic(uint16_t) *slab_requests(const struct run *slab) {
    return (void *)((char *)(uintptr_t)slab->free_bits + 2 * slab_bitmap_bytes(slab_words(slab)));
}

static inline size_t slab_requests_bytes(const struct run *slab) {
    return slab_keeps_requests() ? align_up(slab->block_count * sizeof(uint16_t), sizeof(uint64_t))
                                 : 0;
}

// If options.quarantine_blocks is not 0: bits of blocks that wait in the heap's quarantine (heap/quarantine.h).
// Relaxed: written under the heap's lock, read without it by other checks and messages; pairs with nothing.
static inline _Atomic(uint64_t) *slab_quarantined(const struct run *slab) {
    return (void *)((char *)slab_requests(slab) + slab_requests_bytes(slab));
}

// Of such a slab.
bool slab_quarantine_has(const struct run *slab, unsigned index);

// What the program may use of a block in use.
static inline size_t slab_usable_bytes(const struct run *slab, unsigned index) {
    return unlikely(options.slack_check) ? atomic_load_relaxed(&slab_requests(slab)[index])
                                         : size_classes[slab->class_index].block_bytes;
}

static inline uintptr_t slab_block(const struct run *slab, unsigned index) {
    return slab->start + (uintptr_t)index * size_classes[slab->class_index].block_bytes;
}

// Up to 64 neighbouring blocks: those of one word of the bitmaps. Valid while one of them is out.
struct slab_word {
    uintptr_t start;
    uint32_t bytes;
    uint32_t block_count, block_bytes, reciprocal;
    _Atomic(uint64_t) *held;  // the slab's word of free_bits. Relaxed as there.
};

static inline struct slab_word slab_word(const struct run *slab, unsigned word) {
    const struct size_class *size_class = &size_classes[slab->class_index];
    const unsigned count = slab_word_count(slab, word);
    return (struct slab_word){
        .start = slab->start + (uintptr_t)word * 64 * size_class->block_bytes,
        .bytes = count * size_class->block_bytes,
        .block_count = count,
        .block_bytes = size_class->block_bytes,
        .reciprocal = size_class->reciprocal,
        .held = &slab->free_bits[word],
    };
}

// False only if no word of a slab of such blocks contains both addresses, of which one is in it.
static inline bool blocks_may_share_word(uint32_t block_bytes, uintptr_t a, uintptr_t b) {
    const uintptr_t word_bytes = 64 * (uintptr_t)block_bytes;
    return a - b + word_bytes < 2 * word_bytes;
}

static inline bool slab_word_contains(const struct slab_word *word, uintptr_t address) {
    return address - word->start < word->bytes;
}

// The bit of the block that starts at an address that the word contains, or 0 when none does.
static inline uint64_t slab_word_bit(const struct slab_word *word, uintptr_t address) {
    const uint32_t offset = (uint32_t)(address - word->start);
    const uint32_t index = block_index(offset, word->reciprocal);
    return index * word->block_bytes == offset ? bit(index) : 0;
}

static inline bool slab_holds(const struct run *slab, unsigned index) {
    return (atomic_load_relaxed(&slab->free_bits[index / 64]) & bit(index % 64)) != 0;
}

// Whether the block is free as far as the bitmaps tell: held, or on its way back.
static inline bool slab_is_free(const struct run *slab, unsigned index) {
    const uint64_t bits = atomic_load_relaxed(&slab->free_bits[index / 64]) |
                          atomic_load_relaxed(&slab->remote_bits[index / 64]);
    return (bits & bit(index % 64)) != 0;
}

// Whether a quarantine holds the block back: the program has freed it.
static inline bool slab_is_quarantined(const struct run *slab, unsigned index) {
    return unlikely(options.quarantine_blocks != 0) && slab_quarantine_has(slab, index);
}

static inline bool slab_is_empty(const struct run *slab) {
    return slab->free_count == slab->block_count;
}

// Whether a round finds something in it that it has not tried in vain.
static inline bool slab_is_for_rounds(const struct run *slab) {
    return slab->purge_age == SLAB_PURGE_USED || slab->purge_age == SLAB_PURGE_AGED;
}

// Counts blocks of a word that came back.
static inline void slab_put_count(struct run *slab, unsigned word, unsigned count) {
    slab->summary |= bit(word);
    slab->free_count = (uint16_t)(slab->free_count + count);
    slab->purge_age = SLAB_PURGE_USED;
}

// Puts blocks back: `bits` of word `word`, at least one. None of them may be held already.
static inline void slab_put(struct run *slab, unsigned word, uint64_t bits) {
    const uint64_t before = atomic_load_relaxed(&slab->free_bits[word]);
    atomic_store_relaxed(&slab->free_bits[word], before | bits);
    slab_put_count(slab, word, likely((bits & (bits - 1)) == 0) ? 1 : bit_count(bits));
}

// Bytes of free blocks that may be backed by memory.
static inline uint32_t slab_loose_bytes(const struct run *slab) {
    return (uint32_t)(slab->free_count - slab->clean_count) *
           size_classes[slab->class_index].block_bytes;
}

// Whether pages are left over even if no two of the blocks in use share one. A block of n bytes lies in at most
// n / page + 1 pages.
bool slab_is_sparse(const struct run *slab);

// Gives the system the pages that lie wholly in free blocks, and in what is behind the last one, where there are `bytes_min` of
// them beside each other. What is shorter stays for a purge without a minimum.
struct slab_given_back {
    size_t bytes;
    unsigned calls;  // of the system
};
struct slab_given_back slab_purge(struct run *slab, size_t bytes_min);

size_t slab_check(const struct run *slab);
