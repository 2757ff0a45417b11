// Pages of a superslab that go back to the system.
#pragma once

#include "space/superslab.h"

// Gives the pages of `mask` (claimed by the caller) back to the system, in as few calls as
// possible, and returns those that are now zero.
uint64_t purge_pages(const struct superslab *superslab, uint64_t mask);

// The same for a stretch of machine pages inside a slab, of which one or another may be refused. Returns the bytes given back;
// *calls of the system are counted up.
size_t purge_part(void *start, size_t bytes, unsigned *calls);
