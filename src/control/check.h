// All that the allocator can tell of its own structures (base/check.h), at once.
#pragma once

#include "base/base.h"

// Checks every invariant of every structure; prints a line for each that is violated, which names the
// structure, the invariant and the values, and returns their number. Takes locks; the caches of other threads are not looked into.
size_t check_all(void);

// The same at a tick, or nothing (0) where checks took their share of the time.
size_t check_at_tick(void);
