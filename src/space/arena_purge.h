// Giving free pages of superslabs back to the system.
//
// A free page is purged when it is older than the delay, at the latest at twice that age: purge_delay_ms where huge pages
// may back it, elsewhere what was learned, which is shorter. At once, whatever their age, go those beyond half of the bound
// when they are too many (space/excess.h), and as many as a huge block makes everything more than it ever was
// (arena_make_room).
#pragma once

#include "base/base.h"

// Milliseconds (os_clock_ms) of the next due purge; UINT64_MAX when nothing is dirty.
uint64_t arena_purge_due(void);

// Whether it is due; also where purge_delay_ms has become shorter than what is left until then.
bool arena_purge_is_due(uint64_t now_ms);

// Purges what has aged until that was so much, or a superslab's more: the next call is due at once then. ARENA_PURGE_ALL:
// everything that is dirty. Unmaps superslabs that are wholly free, beyond one: clean ones, and those that the system
// refuses to clear. Returns the bytes given back.
#define ARENA_PURGE_ALL SIZE_MAX
size_t arena_purge(uint64_t now_ms, size_t most_bytes);

// Purges empty runs as a free does when they are too many, where at least `least_bytes` of them may stay. Cheap when
// there are not so many.
void arena_trim(uint64_t least_bytes);

// A huge block was made or has grown, and is not touched yet. Where runs, dirty pages and huge blocks are now more
// together than ever before, purges as many bytes of dirty pages, or what there is, whatever its age: they cannot serve
// there, and would stand beside it at the peak (docs/decisions/0085).
void arena_make_room(void);

// Purges all dirty pages if they are no more than so many bytes.
void arena_purge_small(uint64_t most_bytes);

// For arena.c, where a run of so many bytes is free since: purges when more is dirty than may stay. The arena's lock is held,
// and released here.
void arena_purge_freed_and_unlock(uint64_t freed_bytes);
