// The pages of all superslabs: which are free, dirty or in use, and how many there are and were. arena.c makes runs of them,
// arena_purge.c gives them back to the system. All functions: under the arena's lock,
// but arena_note_beside(), arena_dirty_bytes() and arena_lift_guard().
//
// A superslab's state is one bit per page in a few words, so finding, splitting and joining runs is
// bit arithmetic, and neighbouring free runs are one free run by themselves:
//
//   page        0   1   2   3   4   5   6   7 ...
//   free        0   0   0   1   1   0   1   1        in no run
//   run_start   1   0   1   0   0   1   0   0        first page of a run in use
//   dirty       .   .   .   1   0   .   1   1        free, and may hold memory (young or old)
//   zero        .   .   .   0   1   .   0   0        free, and reads as zero
//
// Invariants (arena_check): run_start is disjoint from free; dirty_young, dirty_old and zero are
// disjoint from each other and within free, and together equal free; every page in use belongs to
// exactly one run, or is stuck or being purged; longest == longest stretch of free; on the list of that length; the superslab is
// on the dirty list exactly when a dirty or stuck bit is set.
#pragma once

#include "base/atomic.h"
#include "base/base.h"
#include "base/list.h"
#include "os/lock.h"
#include "os/os.h"
#include "space/excess.h"
#include "space/runs_delay.h"
#include "space/superslab.h"

// All superslabs. Changed in arena.c, arena_pages.c and arena_purge.c alone.
struct arena {
    struct lock lock;
    bool ready;
    // Superslabs by the length of their longest free stretch; bit n-1 of `lengths`: list n is not
    // empty. Full ones (length 0) are on no list.
    struct list by_length[SUPERSLAB_PAGES + 1];
    uint64_t lengths;
    struct list all, dirty;
    struct superslab *recycled;  // descriptors of unmapped superslabs, linked through `start`
    uint64_t purge_round;        // of the latest round
    uint64_t open_round;         // of that by the clock, which is not over; 0: none
    uint8_t open_scope;          // enum purge_scope (arena_purge.c): what it takes
    uint32_t spare_count;        // wholly free and clean superslabs
    uint64_t superslab_count, superslab_count_max;
    uint64_t used_pages;  // in runs, their guards included
    // Bytes of huge blocks, live and kept. Relaxed: written under the lock of their table, read under this one; a late
    // look makes room later. Pairs with nothing.
    _Atomic(uint64_t) beside_bytes;
    uint64_t sum_peak_pages;  // the highest sum of used, dirty and beside, as seen under the lock
    uint64_t room_pages;      // purged by arena_make_room(), and not wanted again so far
    uint64_t room_ms;         // when that was last
    // Free, and perhaps still backed by memory. Relaxed: written under the lock, read by arena_trim() and
    // arena_purge_small(); pairs with nothing.
    _Atomic(uint64_t) dirty_pages;
    struct excess excess;
    struct runs_delay delay;
    uint32_t guard_count;  // pages behind runs, in force or stuck
    // Relaxed: written under the lock, read by pacing; pairs with nothing.
    _Atomic(uint64_t) purge_due_ms;
};
HIDDEN extern struct arena arena_state;

// So many bytes are in huge blocks now, live and kept. Any thread, without the arena's lock.
static inline void arena_note_beside(uint64_t bytes) {
    atomic_store_relaxed(&arena_state.beside_bytes, bytes);
}

// The highest number of pages in use or dirty so far. Relaxed: written under the arena's lock, read by threads that
// then give back what is kept elsewhere; pairs with nothing.
HIDDEN extern _Atomic(uint32_t) arena_peak_pages;

// To be called first after the lock was taken.
void arena_prepare_lists(void);

static inline uint64_t arena_dirty_pages(void) {
    return atomic_load_relaxed(&arena_state.dirty_pages);
}

static inline uint64_t arena_dirty_bytes(void) {
    return arena_dirty_pages() * PAGE_BYTES;
}

static inline void arena_count_dirty(uint64_t more) {
    atomic_bump_owned(&arena_state.dirty_pages, more);
}

// Pages come into use, `new_pages` of them from the system.
void arena_count_used(uint64_t pages, uint64_t new_pages);

// Pages in use, dirty ones, and those of huge blocks, live and kept.
uint64_t arena_sum_pages(void);
void arena_note_sum(void);

// What made room so long ago would have gone anyway.
void arena_forget_old_room(uint64_t now_ms);

// Files the superslab again after its words changed.
void arena_refile(struct superslab *superslab);

// Takes pages out of the free ones; returns those that are not known to read as zero.
uint64_t arena_claim_pages(struct superslab *superslab, uint64_t mask);

// Pages that nobody has are free, and dirty.
void arena_release_pages(struct superslab *superslab, uint64_t mask);

// There is something to purge: due, and the next tick sets the time.
static inline void arena_note_dirty(void) {
    if (atomic_load_relaxed(&arena_state.purge_due_ms) == UINT64_MAX) {
        atomic_store_relaxed(&arena_state.purge_due_ms, 0);
    }
}

// A new one, wholly free. NULL when the system has no memory.
struct superslab *arena_map_superslab(void);

// The superslab must be wholly free. A mapping the system refuses to unmap stays in use.
bool arena_unmap_superslab(struct superslab *superslab);

// Makes the guard page behind a run accessible again; false when the system refuses.
static inline bool arena_lift_guard(const struct superslab *superslab, unsigned place) {
    return os_commit((char *)superslab->start + place * PAGE_BYTES, PAGE_BYTES);
}
