// Where in a superslab a run of pages fits, told by words with a bit for each page.
#pragma once

#include "base/bits.h"
#include "space/superslab.h"

// Bit i: page i is at a multiple of `alignment` bytes.
static inline uint64_t aligned_pages(size_t alignment) {
    uint64_t mask = 0;
    const unsigned step =
        alignment >= SUPERSLAB_BYTES ? SUPERSLAB_PAGES : (unsigned)(alignment >> PAGE_SHIFT);
    for (unsigned i = 0; i < SUPERSLAB_PAGES; i += step) {
        mask |= bit(i);
    }
    return mask;
}

// Where in `pages` a run of `page_count` pages may start: as low as it may in the shortest stretch with room for it, so that
// longer ones stay whole; of two as short in the lower one. 64 when nowhere.
static inline unsigned best_fit(uint64_t pages, unsigned page_count, uint64_t allowed) {
    const uint64_t places = bit_stretches(pages, page_count) & allowed;
    unsigned best = SUPERSLAB_PAGES;
    unsigned shortest = SUPERSLAB_PAGES + 1;
    for (uint64_t rest = places == 0 ? 0 : pages; rest != 0;) {
        const unsigned first = bit_lowest(rest);
        const unsigned length = bit_stretch_length(rest, first);
        const uint64_t here = places & bit_range(first, length);
        if (length < shortest && here != 0) {
            shortest = length;
            best = bit_lowest(here);
        }
        rest &= ~bit_range(first, length);
    }
    return best;
}
