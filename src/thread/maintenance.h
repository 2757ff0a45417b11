// What has to happen now and then, done by whichever thread comes along a slow path: there is no
// background thread.
#pragma once

#include "thread/cache.h"

// Called on every slow path; looks at the processor's counter, and about a hundred times a second
// at the clock. True when it did: the caller may then do its own rare work.
bool maintenance_tick(struct thread_cache *cache);

// Gives back whatever can be: quarantined blocks, all empty slabs, kept mappings and dirty pages, of all heaps whose
// lock is free; the calling thread's cache too. Returns the bytes given to the system.
size_t maintenance_reclaim(void);

// The same for a request of at least `bytes` that was refused; nothing where so much would be refused even if all that is mapped
// were the system's. The caller tries again in any case: others ask as well, and a look takes what the system has.
void maintenance_reclaim_for(size_t bytes);
