// The pages of all superslabs: which are free, dirty or in use, and how many there are and were. For arena.c, which makes runs of
// them, and arena_purge.c, which gives them back. All under the arena's lock.
#pragma once

#include "base/atomic.h"
#include "base/base.h"
#include "os/os.h"
#include "space/arena.h"
#include "space/superslab.h"

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
