// Mappings of freed huge blocks, kept until the next block needs their pages: where one of them is long
// enough as it lies, else by moving pages from as many as it takes, so that only what no kept mapping has
// comes as new memory. All functions want the lock of the table of huge blocks.
//
//   kept        AAAAAAAA  BBBBB  CCC          a block of 10 is wanted:
//   the block   AAAAAAAACC                    A moves as a whole, then the end of C, the shortest that is long enough
//   kept        BBBBB  C
#pragma once

#include "heap/huge_table.h"

// A kept mapping of at least `mapped_bytes` (a multiple of the machine's page) at a multiple of
// `alignment`, off the kept bytes but still on the list; what it is too long by stays kept where that can
// be cut off, else it is a quarter at most. NULL when there is none.
struct huge *kept_take(size_t mapped_bytes, size_t alignment);

// A live mapping, whose pages have no entries any more, is kept from now on. Of too many the oldest goes, or, where
// the system has refused to unmap that one, this one.
void kept_add(struct huge *huge, uint64_t now_ms);

// Moves kept pages to a mapping whose bytes from `from_bytes` on are untouched. Returns how many bytes
// came; what follows them is still untouched.
size_t kept_fill(struct huge *huge, size_t from_bytes);

// Of kept mappings, without those that the system refused to unmap: these wait until they are old enough to be tried again, and
// are beyond no bound meanwhile.
uint64_t kept_unrefused_bytes(void);

// Takes such memory beyond `bytes_max` off, the oldest first, for the caller to unmap (heap/leaving.h). Returns the bytes.
uint64_t kept_trim(uint64_t bytes_max);

// The same for kept mappings freed at least `age_ms` before now_ms, up to the first younger one: they lie in the order
// in which they were freed.
void kept_drop_aged(uint64_t now_ms, uint64_t age_ms);
