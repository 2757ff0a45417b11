// The leak report: what the program still holds when it ends.
#pragma once

#include "base/base.h"

struct leaks {
    uint64_t blocks, bytes;
};

// Brings what caches and quarantines hold back to the slabs as far as this thread may,
// counts the blocks that are live, and prints them by size class to a file descriptor. Blocks in the
// caches of threads that still run count as free. Takes every heap's lock in turn, so none may be held.
struct leaks leaks_report(int descriptor);
