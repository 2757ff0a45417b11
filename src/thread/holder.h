// Who has a block that is out of its slab, for messages about misuse.
#pragma once

#include "heap/misuse.h"

// Looks through the calling thread's own cache. Takes no lock. `start` is where a block of the slab
// starts.
enum block_holder holder_find(const struct run *slab, uintptr_t start);
