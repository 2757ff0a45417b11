// Pages of a superslab that go back to the system.
#pragma once

#include "space/superslab.h"

// Gives the pages of `mask` (claimed by the caller) back to the system, in as few calls as
// possible, and returns those that are now zero.
uint64_t purge_pages(const struct superslab *superslab, uint64_t mask);

// Around purge_pages(), under the arena's lock: what this thread gives back meanwhile without it. NULL: others give back so much at once
// that it is not noted, and the lock is to be kept.
struct purge;
struct purge *purge_begin(const struct superslab *superslab, uint64_t pages);
void purge_end(struct purge *purge);

// In the child of a fork, under that lock: threads that are gone give nothing back any more.
void purge_fork_child(void);

// The noted pages of a superslab that this thread is about to give back: below a signal handler that it is in.
uint64_t purge_own_pages(const struct superslab *superslab);

// Whether the system took nothing of what was last tried, piece by piece.
bool purge_is_refused(void);

// purge_pages() for a stretch of machine pages inside a slab, of which one or another may be refused. Returns the bytes given back;
// *calls of the system are counted up.
size_t purge_part(void *start, size_t bytes, unsigned *calls);
