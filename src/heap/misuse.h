// What happens when the program hands over a pointer it should not: one line on standard error that
// names the pointer and what it is, then abort (HAKMEM_ABORT=0: nothing, the call is ignored).
// Allocates nothing, and takes no lock but that of the huge blocks, so it may be called with a
// heap's lock held.
#pragma once

#include "base/base.h"

struct run;

enum misuse {
    MISUSE_INVALID_FREE,
    MISUSE_DOUBLE_FREE,
    MISUSE_INVALID_REALLOC,
    MISUSE_REALLOC_OF_FREED,
    MISUSE_INVALID_USABLE_SIZE,
    MISUSE_USABLE_SIZE_OF_FREED,
    MISUSE_SIZE_MISMATCH,
    MISUSE_OVERFLOW,
    MISUSE_UNDERFLOW,
};

// An address that is not the start of a block in use, or of one that is free. An "invalid" kind
// becomes its "freed" counterpart when the address is the start of a free block. For an address in the
// pool of guarded blocks the stacks of the nearest one follow; an overflow or underflow is of a byte
// there that was changed.
void misuse_report(enum misuse what, uintptr_t address);

// The block `index` of a slab.
void misuse_report_block(enum misuse what, const struct run *slab, unsigned index);

// The same, of a kind that may be an "invalid" one: it becomes its "freed" counterpart.
void misuse_report_freed(enum misuse what, const struct run *slab, unsigned index);

// A block of `block_bytes` that was said to have `claimed_bytes`.
void misuse_report_size(uintptr_t address, size_t block_bytes, size_t claimed_bytes);
