// Bit arithmetic on 64-bit words: the whole of run and block management is built from these.
#pragma once

#include "base/base.h"

// Index of the lowest / highest set bit. The word must not be zero.
static inline unsigned bit_lowest(uint64_t word) {
    return (unsigned)__builtin_ctzll(word);
}

static inline unsigned bit_highest(uint64_t word) {
    return 63u - (unsigned)__builtin_clzll(word);
}

// x86-64 has the instruction since 2008, not from the start: without it the compilers may call their library.
static inline unsigned bit_count(uint64_t word) {
#if defined(__x86_64__) && !defined(__POPCNT__)
    word -= word >> 1 & UINT64_C(0x5555555555555555);
    word = (word & UINT64_C(0x3333333333333333)) + (word >> 2 & UINT64_C(0x3333333333333333));
    word = (word + (word >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    return (unsigned)(word * UINT64_C(0x0101010101010101) >> 56);
#else
    return (unsigned)__builtin_popcountll(word);
#endif
}

static inline uint64_t bit(unsigned index) {
    return UINT64_C(1) << index;
}

// `count` ones from bit `first` upward; first + count <= 64, count may be 0 or 64.
static inline uint64_t bit_range(unsigned first, unsigned count) {
    return count == 0 ? 0 : (UINT64_MAX >> (64 - count)) << first;
}

// Length of the stretch of ones that begins at bit `first`, which is one.
static inline unsigned bit_stretch_length(uint64_t word, unsigned first) {
    const uint64_t beyond = ~(word >> first);
    return beyond == 0 ? 64 : bit_lowest(beyond);
}

// Whether the ones of a word are one stretch, or none.
static inline bool bit_is_stretch(uint64_t word) {
    return ((word + (word & -word)) & word) == 0;
}

// The `count` lowest set bits of `word` (all of them when it has fewer).
static inline uint64_t bits_lowest(uint64_t word, unsigned count) {
    if (bit_is_stretch(word)) {
        return count >= 64 ? word : word & ~(word << count);
    }
    // From the end that is nearer.
    unsigned too_many = bit_count(word) > count ? bit_count(word) - count : 0;
    if (too_many <= count) {
        for (; too_many > 0; too_many--) {
            word &= ~bit(bit_highest(word));
        }
        return word;
    }
    uint64_t rest = word;
    for (unsigned i = 0; i < count; i++) {
        rest &= rest - 1;
    }
    return word & ~rest;
}

// Bit i of the result is set when `word` has `count` consecutive ones starting at i.
// Doubling: after each step a one stands for a stretch twice as long. 1 <= count <= 64.
static inline uint64_t bit_stretches(uint64_t word, unsigned count) {
    unsigned done = 1;
    while (done < count && word != 0) {
        const unsigned step = done < count - done ? done : count - done;
        word &= word >> step;
        done += step;
    }
    return word;
}

// Length of the longest stretch of ones, 0..64.
static inline unsigned bit_longest_stretch(uint64_t word) {
    if (word == UINT64_MAX) {
        return 64;
    }
    unsigned length = 0;
    while (word != 0) {
        word &= word << 1;
        length++;
    }
    return length;
}

static inline bool is_power_of_two(size_t value) {
    return value != 0 && (value & (value - 1)) == 0;
}

// `alignment` is a power of two; the caller has made sure that the sum does not overflow.
static inline size_t align_up(size_t value, size_t alignment) {
    return (value + alignment - 1) & ~(alignment - 1);
}

static inline size_t align_down(size_t value, size_t alignment) {
    return value & ~(alignment - 1);
}

static inline uint64_t least_u64(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static inline uint64_t greatest_u64(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

// A small fast generator for decisions that need no secrecy (xorshift64*; Vigna 2016).
// The state must not be zero.
static inline uint64_t random_next(uint64_t *state) {
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * UINT64_C(0x2545F4914F6CDD1D);
}
