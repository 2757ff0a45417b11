// Huge blocks: above half a superslab. Each has a mapping of its own, starting at a multiple of
// 64 KiB; growing one moves page tables, not bytes.
//
// Every page of a huge block carries the number of its descriptor in the page map, so that any
// address inside it is recognised. Freed mappings are kept for a while (huge_cache_bytes,
// purge_delay_ms), but never so many that kept and live ones together exceed what was live before, and fewer by what
// the arena grows; what a new block needs comes from them as far as they go (heap/kept.h).
#pragma once

#include "heap/huge_table.h"

// Longer blocks, and greater alignments, are refused.
#define HUGE_BYTES_MAX ((size_t)1 << (ADDRESS_BITS - 1))

// `alignment` is a power of two. NULL when the system has no memory.
void *huge_alloc(size_t bytes, size_t alignment, bool zero);

// The live block that contains an address, or NULL. Exact for a block the caller holds.
struct huge *huge_find(uintptr_t address);

// Bytes of a huge block that was freed, whose place nothing took since, and that started here; 0 when
// there is none, or somebody holds the lock. A hint for messages, never waits.
size_t huge_freed_bytes(uintptr_t address);

// `address` is where the caller found the block to start. False when another thread freed it first.
bool huge_free(struct huge *huge, uintptr_t address);

// Makes the block at least `bytes` (more than LARGE_BYTES_MAX) long, moving it if need be: the
// descriptor then has a new start. Shrinking gives the tail back; one with a guard keeps its length. False, with the block intact, when
// the system has no memory, and where one with a guard shrinks to half or less.
bool huge_resize(struct huge *huge, size_t bytes);

// Unmaps kept mappings freed at least purge_delay_ms before now_ms (all of them when `everything`).
// Returns the bytes.
size_t huge_purge(uint64_t now_ms, bool everything);

// Unmaps as much of the kept mappings, the oldest first, as the arena has passed its highest size by since the last
// look: none of them serves it.
void huge_make_room(void);

// Whether there are kept mappings.
bool huge_has_kept(void);

// Waits until what other threads gave back is the system's: until then it counts against this process's limits.
void huge_await_unmapping(void);

// live_bytes and kept_bytes are of mappings, guards included; usable_bytes of live blocks alone.
struct huge_totals {
    uint64_t live_count, usable_bytes, live_bytes, live_bytes_max, kept_bytes;
};
void huge_totals(struct huge_totals *totals);

size_t huge_check(void);

void huge_fork_lock(void);
void huge_fork_child(void);
void huge_fork_unlock(void);
