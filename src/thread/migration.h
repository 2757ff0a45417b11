// Slabs that move between heaps: a thread that would have to make a slab first looks for one with free
// blocks in heaps whose threads have ended or sleep. Without it each heap that ever was keeps its own
// partly used slabs (the blow-up of Berger and others, "Hoard", ASPLOS 2000).
//
// A slab moves under the locks of both heaps. Whoever sends one of its blocks home at that moment may still
// see the former heap: as its own, and looks again under that heap's lock (thread/cache.c); or as another's, and announces it
// there, from where it is forwarded (heap_collect).
#pragma once

#include "thread/cache.h"

// A thread without a slow path for so long is asleep, or lives on its magazines.
#define MIGRATION_IDLE_MS 10

// A thread that brings slabs from a heap asleep is one that needs memory: what emptied there as well is its own to use, at
// once (`to_relieve` in thread/cache.h, maintenance_tick()). Less than a superslab may wait for a visitor; and it takes no
// more at a time than it may need soon: what is free beyond excess_bytes would go to the system.
#define MIGRATION_RELIEF_WORTH_BYTES SUPERSLAB_BYTES
#define MIGRATION_RELIEF_BYTES (128 * KIB)

// Brings a slab with free blocks of the class into the calling thread's heap, whose lock is held and
// which has none, if an idle heap has one as far as a few looks can tell. `all` is the first of all
// caches.
void migration_bring(struct thread_cache *all, struct thread_cache *cache, uint64_t class_index);

// Milliseconds since the cache's thread took its last slow path, as far as visitors have seen. The lock of
// its heap is held.
uint64_t migration_idle_ms(struct thread_cache *cache, uint64_t now_ms);
