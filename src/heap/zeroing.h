// What a zeroed huge block is made of: clean pages of the system, or kept ones that are cleared.
//
// A clean page costs a fault when it is touched, several times what clearing one takes; but a page that the program never
// touches needs no memory. So the program is watched: some zeroed blocks are given out with a clean part in their
// middle, and when such a block is freed, it shows whether that part was touched. As long as it was, kept
// pages are cleared. Why: docs/decisions/0035-calloc.md.
#pragma once

#include "heap/huge_table.h"

struct zeroing {
    bool clears;  // else all pages are to be clean
    bool probes;  // a part of the block is to be clean in any case
};

// For the next zeroed block. The table's lock is held.
struct zeroing zeroing_next(void);

// Makes a new block read as zero whose first `dirty_bytes` may not.
void zeroing_do(struct huge *huge, size_t dirty_bytes, struct zeroing zeroing);

enum zeroing_use { ZEROING_UNKNOWN, ZEROING_UNTOUCHED, ZEROING_TOUCHED };

// What became of the clean part of a block that is about to be kept, if it had one.
enum zeroing_use zeroing_use_of(const struct huge *huge);

// The table's lock is held.
void zeroing_learn(enum zeroing_use use);
