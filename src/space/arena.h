// Address space for slabs and large blocks: superslabs of 4 MiB, cut into runs of 64 KiB pages (space/arena_pages.h). What is
// freed goes back to the system by space/arena_purge.h.
#pragma once

#include "base/atomic.h"
#include "base/base.h"
#include "space/page_map.h"
#include "space/superslab.h"

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

// Takes the arena's lock, and looks at no superslab, however many there are. `free_bytes`: in no run.
struct arena_totals {
    uint64_t mapped_bytes, mapped_bytes_max, free_bytes, dirty_bytes;
};
void arena_totals(struct arena_totals *totals);
uint64_t arena_mapped_bytes(void);  // that alone

// Number of violated invariants.
size_t arena_check(void);

void arena_fork_lock(void);
void arena_fork_unlock(void);
// In the child, before the unlock: what threads that are gone were purging is free again.
void arena_fork_child(void);
