// Slack: the bytes of a small block behind those that were asked for. With the option slack_check every
// block has at least one, filled with bytes that are neither zero nor text, and looked at when the block
// is freed, resized or measured:
//
//     start                       + requested            + block_bytes
//     |  what the program may use |  filler, at least 1  |  the next block
//
// The requested sizes lie behind the slab's bitmaps (slab.h), where no overflow reaches them. The filler
// depends on the block and on a number of the process: one byte that is neither passes in one block of
// 128, two in one of 16,384.
//
// The caller of all but the first owns the block, or holds the heap's lock.
#pragma once

#include "heap/slab.h"

// Once, before the first block.
void slack_start(void);

// Records a request of `bytes`, less than the block, and fills what is behind.
void slack_set(struct run *slab, unsigned index, size_t bytes);

// The same for a block whose contents stay: what the program gains reads as zero.
void slack_resize(struct run *slab, unsigned index, size_t bytes);

// Reports a buffer overflow when the filler has changed, and repairs it.
void slack_require(struct run *slab, unsigned index);
