// A load that takes NULL for an answer: blocks of all kinds, kept in a fixed table, verified when
// they go. Every NULL must come with ENOMEM.
#pragma once

#include "behaviour.h"

// Takes blocks until about `goal_bytes` are live or a request is refused; returns the live bytes.
size_t load_grow(size_t goal_bytes, size_t size_max);

// Live bytes, and refusals since the start.
size_t load_live(void);
unsigned int load_refusals(void);

// Frees one block in `every`, checking contents; 1 frees all.
void load_shrink(size_t every);

// Every entry point once, each answering with a good block or with NULL and ENOMEM; realloc keeps
// the old block when it is refused.
void load_every_entry_point(size_t bytes);

// Takes and frees `goal_bytes` in several mixes, in this thread and in four others. No refusal is
// allowed: for use when no limit holds any more.
void load_complete(size_t goal_bytes);
