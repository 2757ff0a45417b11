#include "space/purge_pages.h"

#include "base/bits.h"
#include "os/os.h"
#include "space/huge_pages.h"

// Of so many pages refused one by one, and none taken, the others are taken to be refused too.
#define REFUSED_PAGES_MOST 8

// A stretch was refused page by page, and none was taken since: everything is locked in memory, or the call forbidden. Relaxed: more
// or fewer calls; pairs with nothing.
static _Atomic(bool) all_refused;

static void *page_start(const struct superslab *superslab, unsigned place) {
    return (char *)superslab->start + place * PAGE_BYTES;
}

// The system stops at a page that the program has locked: all but that one are to go. Huge pages were split for
// the whole stretch already, so that os_purge() will do.
SLOW_PATH static uint64_t purge_one_by_one(const struct superslab *superslab, uint64_t stretch) {
    uint64_t purged = 0;
    if (atomic_load_relaxed(&all_refused)) {
        return 0;
    }
    unsigned refused_count = 0;
    for (; stretch != 0 && (purged != 0 || refused_count < REFUSED_PAGES_MOST);
         stretch &= stretch - 1) {
        const unsigned place = bit_lowest(stretch);
        const bool is_purged = os_purge(page_start(superslab, place), PAGE_BYTES);
        purged |= is_purged ? bit(place) : 0;
        refused_count += !is_purged;
    }
    atomic_store_relaxed(&all_refused, purged == 0);
    return purged;
}

uint64_t purge_pages(const struct superslab *superslab, uint64_t mask) {
    uint64_t purged = 0;
    while (mask != 0) {
        const unsigned first = bit_lowest(mask);
        const unsigned count = bit_stretch_length(mask, first);
        const uint64_t stretch = bit_range(first, count);
        if (likely(huge_pages_purge(page_start(superslab, first), count * PAGE_BYTES))) {
            purged |= stretch;
            if (unlikely(atomic_load_relaxed(&all_refused))) {
                atomic_store_relaxed(&all_refused, false);
            }
        } else if (count != 1) {
            purged |= purge_one_by_one(superslab, stretch);
        }
        mask &= ~stretch;
    }
    return purged;
}
