// Memory of huge blocks on its way back to the system. The call takes as long as there are pages behind the
// addresses, so it is made without the lock of the table. Until it is done the range has a descriptor on a list
// of its own, and is nobody's but the unmapping thread's; from then on it may be anybody's.
//
// fork waits for other threads' calls: the child could not know whether the range is still there, or
// somebody else's by now. While it does, new calls are made under the lock, so that it waits for those alone that
// were under way. All functions but leaving_purge() want the lock of the table of huge blocks.
#pragma once

#include "heap/huge_table.h"

// The mapping, whose pages have no entries any more, is for this thread to unmap.
void leaving_add(struct huge *huge);

// The same for a part of a mapping. NULL when there is no memory for a descriptor.
struct huge *leaving_add_part(uintptr_t start, size_t bytes);

// Unmaps one that this thread added; the lock is given up meanwhile. Returns the bytes, from its start on, that the
// system refuses: they are the caller's, and the descriptor is unused in any case.
size_t leaving_unmap(struct huge *huge);

// Unmaps all that this thread added, tells the arena what is left beside it, and gives up the lock for good. What the
// system refuses is kept again.
// Returns the bytes that are gone.
size_t leaving_unmap_and_unlock(void);

// os_purge() of a block's pages, which may be many: without the lock.
bool leaving_purge(uintptr_t start, size_t bytes);

// Waits for the calls of other threads that are under way now; the lock is given up meanwhile.
void leaving_await(void);

// Waits until no other thread's call is under way.
void leaving_await_all(void);
