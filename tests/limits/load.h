// A load that takes NULL for an answer: blocks of all kinds, kept in a fixed table, verified when
// they go. Every NULL must come with ENOMEM.
#pragma once

#include "behaviour.h"

// Takes blocks until about `goal_bytes` are live or a request is refused; returns the live bytes.
size_t load_grow(size_t goal_bytes, size_t size_max);

// Live bytes; refusals since the start, and bursts of them: refusals with nothing served in between.
size_t load_live(void);
unsigned int load_refusals(void);
unsigned int load_bursts(void);

// What became of a request that was made with errno 0: true, and counted, when it was refused, which
// must come with ENOMEM.
bool load_refused(const void *block);

// free, which must leave errno alone.
void load_free(void *block);

// Frees one block in `every`, checking contents; 1 frees all.
void load_shrink(size_t every);

// Every entry point once, each answering with a good block or with NULL and ENOMEM; realloc keeps
// the old block when it is refused.
void load_every_entry_point(size_t bytes);

// Takes and frees `goal_bytes` in several mixes, in this thread and in four others. No refusal is
// allowed: for use when no limit holds any more.
void load_complete(size_t goal_bytes);
