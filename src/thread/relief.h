// What waits at heaps asleep, or was left at the thread's own, goes back in parts.
#pragma once

#include "thread/cache.h"

// Collects what others freed, and gives the empty slabs back (heap_release_empty), as far as the heap's budget goes. Its lock is
// held.
void relief_give_back(struct heap *heap, bool keeps_retained);

// So much of what waits at a heap. False when that was all, or nothing of it could be given back.
bool relief_part(struct heap *heap, size_t budget_bytes);

// Where this thread's frees go, or its own heap, and too much of it waits: a part in each slow path, until the rest may stay.
void relief_overfull(struct thread_cache *cache);

// The thread that has the cache ends, and has just sent so many bytes of blocks home, where too much waits (heap.overfull): twice as
// much as that, in parts, for no slow path follows, and the next thread may send as much. Waits for the heap's lock between them.
void relief_at_end(struct thread_cache *cache, uint64_t sent_bytes);
