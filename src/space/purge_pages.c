#include "space/purge_pages.h"

#include "base/bits.h"
#include "os/os.h"
#include "space/huge_pages.h"

// Of so many pieces refused, and none taken, the others are taken to be refused too. They lie apart: what is locked may be the first
// half, and the rest to go.
#define REFUSED_PIECES_MOST 8

// Of a stretch no piece was taken, and nothing else was since: everything is locked in memory, or the call forbidden. One of eight stretches
// is tried then, with one piece, for all may not be so. Relaxed: more or fewer calls; pairs with nothing.
static _Atomic(bool) all_refused;
#define TRIED_PART_LOG2 3

bool purge_is_refused(void) {
    return atomic_load_relaxed(&all_refused);
}

// Runs through all parts of 2^32 without a period: its value decides whether a stretch is tried, and with which piece first. Relaxed: any value will
// do; pairs with nothing.
static _Atomic(uint32_t) turn;
#define TURN_STEP UINT32_C(0x9e3779b9)

static uint32_t next_turn(void) {
    const uint32_t now = atomic_load_relaxed(&turn);
    atomic_store_relaxed(&turn, now + TURN_STEP);
    return now;
}

static unsigned tries_most(uint32_t now) {
    if (likely(!atomic_load_relaxed(&all_refused))) {
        return REFUSED_PIECES_MOST;
    }
    return now >> (32 - TRIED_PART_LOG2) == 0 ? 1 : 0;
}

// The system stops at a page that the program has locked: all but that one are to go. Huge pages were split for
// the whole stretch already, so that os_purge() will do. Returns a bit for each piece that is gone.
SLOW_PATH static uint64_t purge_one_by_one(char *start, size_t bytes, size_t piece_bytes,
                                           unsigned *calls) {
    const unsigned count = (unsigned)((bytes + piece_bytes - 1) / piece_bytes);
    const unsigned step = (count + REFUSED_PIECES_MOST - 1) / REFUSED_PIECES_MOST;
    const uint32_t now = next_turn();
    const unsigned most = tries_most(now);
    const unsigned first = (unsigned)((uint64_t)(now << TRIED_PART_LOG2) * count >> 32);
    uint64_t purged = 0;
    unsigned tries = 0;
    for (unsigned column = 0; column < step; column++) {
        for (unsigned i = column; i < count && (purged != 0 || tries < most); i += step) {
            const unsigned piece = (i + first) % count;
            const size_t offset = piece * piece_bytes;
            const bool is_gone = os_purge(start + offset, least_u64(piece_bytes, bytes - offset));
            purged |= is_gone ? bit(piece) : 0;
            tries++;
        }
    }
    *calls += tries;
    atomic_store_relaxed(&all_refused, purged == 0);
    return purged;
}

// Whether a whole stretch is gone.
static bool purge_whole(char *start, size_t bytes) {
    const bool is_gone = huge_pages_purge(start, bytes);
    if (is_gone && unlikely(atomic_load_relaxed(&all_refused))) {
        atomic_store_relaxed(&all_refused, false);
    }
    return is_gone;
}

// Purges that are under way without the arena's lock. More at once keep it.
#define PURGES_MOST 16
static struct purge {
    uint64_t pages;  // 0: none
    const struct superslab *superslab;
    uintptr_t purger;  // thread pointer
} purges[PURGES_MOST];

struct purge *purge_begin(const struct superslab *superslab, uint64_t pages) {
    for (struct purge *purge = purges; purge != purges + PURGES_MOST; purge++) {
        if (purge->pages == 0) {
            *purge = (struct purge){pages, superslab, os_thread_pointer()};
            return purge;
        }
    }
    return NULL;
}

void purge_end(struct purge *purge) {
    if (purge != NULL) {
        purge->pages = 0;
    }
}

void purge_fork_child(void) {
    for (struct purge *purge = purges; purge != purges + PURGES_MOST; purge++) {
        if (purge->purger != os_thread_pointer()) {
            purge->pages = 0;
        }
    }
}

uint64_t purge_own_pages(const struct superslab *superslab) {
    uint64_t pages = 0;
    for (const struct purge *purge = purges; purge != purges + PURGES_MOST; purge++) {
        if (purge->superslab == superslab && purge->purger == os_thread_pointer()) {
            pages |= purge->pages;
        }
    }
    return pages;
}

uint64_t purge_pages(const struct superslab *superslab, uint64_t mask) {
    uint64_t purged = 0;
    while (mask != 0) {
        const unsigned first = bit_lowest(mask);
        const unsigned count = bit_stretch_length(mask, first);
        const uint64_t stretch = bit_range(first, count);
        char *start = (char *)superslab->start + first * PAGE_BYTES;
        if (likely(purge_whole(start, count * PAGE_BYTES))) {
            purged |= stretch;
        } else if (count != 1) {
            unsigned calls = 0;
            purged |= purge_one_by_one(start, count * PAGE_BYTES, PAGE_BYTES, &calls) << first;
        }
        mask &= ~stretch;
    }
    return purged;
}

// A part of a slab may have more of the machine's pages than there are bits.
SLOW_PATH static size_t purge_part_in_pieces(char *start, size_t bytes, unsigned *calls) {
    const size_t piece_bytes = align_up((bytes + 63) / 64, os_page_bytes());
    if (piece_bytes >= bytes) {
        return 0;
    }
    const uint64_t purged = purge_one_by_one(start, bytes, piece_bytes, calls);
    const size_t last_bytes = (bytes - 1) % piece_bytes + 1;
    const bool is_last_gone = (purged & bit((unsigned)((bytes - 1) / piece_bytes))) != 0;
    return bit_count(purged) * piece_bytes - (is_last_gone ? piece_bytes - last_bytes : 0);
}

size_t purge_part(void *start, size_t bytes, unsigned *calls) {
    ++*calls;
    return likely(purge_whole(start, bytes)) ? bytes : purge_part_in_pieces(start, bytes, calls);
}
