// What happens when the program hands over a pointer it should not: one line on standard error, then
// abort (HAKMEM_ABORT=0: nothing, the call is ignored). The line, by its parts:
//
//   hakmem: KIND: POINTER PLACE[, STATE]; expected EXPECTATION
//   hakmem: invalid free: 0x7f0120000d10 lies 16 bytes inside the 208-byte block (class 12) at
//   0x7f0120000d00, live; expected the start of a live block           (one line; all of it in SECURITY.md)
//
// Allocates nothing and waits for no lock, so it may be called with any lock of the heap held.
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
    MISUSE_WRITE_AFTER_FREE,
};

// An address that is not the start of a block in use, or of one that is free. An "invalid" kind
// becomes its "freed" counterpart when the address is the start of a free block. For an address in the
// pool of guarded blocks the stacks of the nearest one follow; an overflow or underflow is of a byte
// there that was changed.
void misuse_report(enum misuse what, uintptr_t address);

// The block `index` of a slab, known to be free: an "invalid" kind becomes its "freed" counterpart.
void misuse_report_freed(enum misuse what, const struct run *slab, unsigned index);

// Blocks of one word of a slab's bitmaps that were freed twice: a line for each.
void misuse_report_freed_twice(const struct run *slab, unsigned word, uint64_t bits);

// A block of `block_bytes` that was said to have `claimed_bytes`.
void misuse_report_size(uintptr_t address, size_t block_bytes, size_t claimed_bytes);

// Who has a block that its slab has handed out. Set once at start-up by the layer of the thread
// caches (thread/holder.c), which alone can tell; NULL: nobody can.
enum block_holder { HOLDER_UNKNOWN, HOLDER_PROGRAM, HOLDER_CACHE, HOLDER_QUARANTINE };
HIDDEN extern enum block_holder (*misuse_holder)(const struct run *slab, uintptr_t start);
