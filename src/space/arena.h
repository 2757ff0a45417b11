// Address space for slabs and large blocks: superslabs of 4 MiB, cut into runs of 64 KiB pages.
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
#include "base/bits.h"
#include "base/list.h"
#include "os/lock.h"
#include "os/os.h"
#include "space/excess.h"
#include "space/page_map.h"
#include "space/runs_delay.h"
#include "space/size_class.h"
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
    // Free, and perhaps still backed by memory. Relaxed: written under the lock, read by arena_trim();
    // pairs with nothing.
    _Atomic(uint64_t) dirty_pages;
    struct excess excess;
    struct runs_delay delay;
    uint32_t guard_count;  // pages behind runs, in force or stuck
    // Relaxed: written under the lock, read by pacing; pairs with nothing.
    _Atomic(uint64_t) purge_due_ms;
};
extern struct arena arena_state;  // for control/inspect.c and arena_check.c

// A run of `page_count` pages (1..64), its start aligned to `alignment` bytes (a power of two from
// 64 KiB to 4 MiB), with an inaccessible page behind it when `guard`, if fewer than ARENA_GUARDS_MOST have one: each takes two mappings,
// of which a process has 65,530 (vm.max_map_count) for its threads, files and libraries as well. Bit i of *used: page i of the run may hold what
// was written before; the others read as zero. The page map is covered, the entries are the caller's to set.
// NULL when the system has no memory.
#define ARENA_GUARDS_MOST 8192
struct run *arena_take(unsigned page_count, size_t alignment, bool guard, uint64_t *used);

// Gives a run back. Its page-map entries must be PAGE_ENTRY_NONE again.
void arena_give(struct run *run);

// Extends a run to `page_count` pages if the pages behind it are free. Entries are the caller's.
bool arena_extend(struct run *run, unsigned page_count);

// Gives the pages of a run from `page_count` on back. Entries as for arena_give().
void arena_shorten(struct run *run, unsigned page_count);

// The place in its superslab where a run starts.
static inline unsigned run_place(const struct run *run) {
    return (unsigned)(run->start >> PAGE_SHIFT) % SUPERSLAB_PAGES;
}

// What describes or described the run that starts or last started at a page; NULL where none did, or where its
// descriptor has gone to another run.
static inline struct run *superslab_run(const struct superslab *superslab, unsigned place) {
    return atomic_load_acquire(&((struct superslab *)(uintptr_t)superslab)->runs[place]);
}

// The run in use that contains an address, or NULL. Exact for an address in a block in use; for any
// other address the answer is a claim to check.
struct run *arena_find(uintptr_t address);

// So many bytes are in huge blocks now, live and kept.
static inline void arena_note_beside(uint64_t bytes) {
    atomic_store_relaxed(&arena_state.beside_bytes, bytes);
}

// The highest number of pages in use or dirty so far. Relaxed: written under the arena's lock, read by threads that
// then give back what is kept elsewhere; pairs with nothing.
extern _Atomic(uint32_t) arena_peak_pages;

struct arena_totals {
    uint64_t mapped_bytes, mapped_bytes_max, free_bytes, dirty_bytes;
};
void arena_totals(struct arena_totals *totals);

// Calls visit(run, context) for every run in use of kind RUN_LARGE. Takes the arena's lock.
void arena_visit_large(void (*visit)(struct run *run, void *context), void *context);

// Number of violated invariants.
size_t arena_check(void);

void arena_fork_lock(void);
void arena_fork_unlock(void);
// In the child, before the unlock: what threads that are gone were purging is free again.
void arena_fork_child(void);
