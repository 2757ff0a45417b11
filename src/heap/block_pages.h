// Transparent huge pages behind huge blocks: which ask for them, and how memory behind them goes.
//
// With huge_pages=adaptive the learner is asked when a block of BLOCK_PAGES_BYTES_MIN and BLOCK_PAGES_MIN huge pages or more takes memory
// of the system. It is told how much was resident of such memory as others took without huge pages: of one part of each, of 2 MiB, when
// the block is freed, grows, or is among the newest when another one comes. A block far longer than any of those does not ask, nor does
// one in BLOCK_PAGES_PROBE, nor a zeroed one while the program is not seen to fill such (heap/zeroing.h). All functions but
// block_pages_split() and block_pages_touch() want the lock of the table of huge blocks. Why: docs/decisions/0032-the-learner-of-memory.md.
#pragma once

#include "heap/huge_table.h"

// Its end takes up to a huge page too much.
#define BLOCK_PAGES_BYTES_MIN (8 * MIB)
#define BLOCK_PAGES_MIN 4
// One block in so many that come goes without.
#define BLOCK_PAGES_PROBE 8
// A block that asks is at most so many times as long as the longest one of those looked at.
#define BLOCK_PAGES_LONGER 4

// Whether a new block asks. `is_bare`: it is to read as zero, and may stay untouched.
bool block_pages_ask(size_t usable_bytes, bool is_bare);

// Whether a block asks that grows.
bool block_pages_ask_grown(const struct huge *huge, size_t usable_bytes);

// Where the mapping of a block is best to start, for how it asks.
size_t block_pages_alignment(size_t usable_bytes, bool asks);

// A new mapping, without a guard as yet.
void block_pages_map(struct huge *huge, bool asks);

// A block has grown by memory of the system.
void block_pages_grow(struct huge *huge, bool asks);

// The first huge page of the memory that the block has of the system, from `from_bytes` on, if it asks because the learner says so; else
// NULL. Such memory reads as zero, and nobody has touched it.
void *block_pages_first(const struct huge *huge, size_t from_bytes);

// Without the lock, by whose block it is alone: touches that huge page. Where that takes too long (HUGE_PAGE_SLOW_NS) the block asks
// no more.
void block_pages_touch(struct huge *huge, void *first);

// The block's first `filled_bytes` are no longer memory of the system: the last of them came from `source`.
void block_pages_fill(struct huge *huge, const struct huge *source, size_t filled_bytes);

// A kept mapping is in use again.
void block_pages_reuse(struct huge *huge, bool is_bare);

// A block is about to be freed, or to grow.
void block_pages_look(struct huge *huge);

// Before the pages on one side of an address go another way than those on the other: the kernel would keep a huge page
// whole of which a part is left. What the page at `address` holds is lost.
void block_pages_split(const struct huge *huge, uintptr_t address);
