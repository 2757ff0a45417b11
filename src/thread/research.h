// Research: every operation of a thread is counted and timed, while the option `research` says so, which may change at
// any time. Threads follow at their ticks, each on its own: the tops of its magazines are switched off, so that each
// call takes the slow path (see cache.h), and switched on again when it is over.
//
// Each thread cache has tables of its own, made when its thread first follows, and kept; their only writer is the
// thread that has the cache, their readers are outside of the process (docs/INSPECT_ABI.md).
#pragma once

#include "base/histogram.h"
#include "space/size_class.h"
#include "thread/cache.h"

// Where an operation ended: in the magazine's node, in its depot, in the heap's slabs (a refill or a flush), in
// a slab that was made for it; a free of another heap's block, wherever it ended; the others are kinds of block.
enum research_level {
    RESEARCH_NODE,
    RESEARCH_DEPOT,
    RESEARCH_HEAP,
    RESEARCH_NEW_SLAB,
    RESEARCH_REMOTE,
    RESEARCH_LARGE,
    RESEARCH_HUGE,
    RESEARCH_GUARDED,
    RESEARCH_FAILED,
    RESEARCH_LEVEL_COUNT,
};

#define RESEARCH_FLOWS 64

// Blocks of another heap that this thread freed.
struct research_flow {
    // Relaxed, as all counts here: written by the thread that has the cache; pairs with nothing.
    _Atomic(uint64_t) heap_id;  // 0: unused
    _Atomic(uint64_t) blocks;   // relaxed
};

struct research {
    // Relaxed, all: written by the thread that has the cache; pairs with nothing.
    _Atomic(uint64_t) allocs[SIZE_CLASS_COUNT], frees[SIZE_CLASS_COUNT];
    _Atomic(uint64_t) requested_bytes[SIZE_CLASS_COUNT];  // of these allocs
    _Atomic(uint64_t) alloc_levels[RESEARCH_LEVEL_COUNT], free_levels[RESEARCH_LEVEL_COUNT];
    // Relaxed, as these: frees of other heaps' blocks that had no place among the flows; allocations until one's
    // life is followed.
    _Atomic(uint64_t) other_flows, countdown;
    struct research_flow flows[RESEARCH_FLOWS];
    struct histogram alloc_ticks, free_ticks, request_bytes, lifetime_ticks;
};

// Blocks whose lives are followed: one allocation in RESEARCH_SAMPLE, if its place is free.
#define RESEARCH_SAMPLE 16
#define RESEARCH_LIVES_LOG2 12
#define RESEARCH_LIVES (1u << RESEARCH_LIVES_LOG2)

struct research_life {
    // 0: unused; 1: being taken; else the block's address. Release after `ticks`, acquire before.
    _Atomic(uint64_t) address;
    // Relaxed: see `address`.
    _Atomic(uint64_t) ticks;  // os_ticks() at its allocation
};

struct research_lives {
    // Relaxed: any thread adds; pairs with nothing.
    _Atomic(uint64_t) followed, without_place;
    struct research_life lives[RESEARCH_LIVES];
};

// NULL until somebody followed. Release when made, acquire by whoever uses it.
HIDDEN extern _Atomic(struct research_lives *) research_lives;

// At ticks and when a thread attaches: does what the option says. Without the memory for tables, nothing.
void research_follow(struct thread_cache *cache);

// The process is the child of a fork: nobody else is about to make a table.
void research_fork_child(void);

// With the option request_sizes: notes that a small block of a researched thread serves a request of so many
// bytes from now on. Of an aligned request, the bytes are those of the block that it needs.
void research_note_request(struct run *slab, const void *block, size_t bytes);

// What one operation begins with.
struct research_mark {
    uint64_t ticks, refills, flushes, depot_swaps, slabs_made;
    uint64_t entry;    // of the page map, for a free
    uint32_t heap_id;  // of the slab's heap, for a free of a small block
};

// Around one operation of a thread whose cache is `researched`.
void research_alloc_begin(const struct thread_cache *cache, struct research_mark *mark);
void research_alloc_end(struct thread_cache *cache, const struct research_mark *mark,
                        const void *block, size_t bytes);
void research_free_begin(const struct thread_cache *cache, struct research_mark *mark,
                         const void *block);
void research_free_end(struct thread_cache *cache, const struct research_mark *mark);
