// How much thread caches may hold: each class of each cache its capacity, in blocks. In bytes it counts
// with the node that the class needs for it.
//
// A class starts low, and doubles while it refills and overflows in turn, up to cache_class_bytes; all
// classes of a cache together have at most cache_heap_bytes. Where that saves slow paths the learner lets both be more
// (thread/knobs.h). Among many threads each has an equal share of
// cache_total_bytes, if that is less, and what a class starts with and may reach is less in proportion,
// unless it was learned.
// Most of many threads sleep, and nobody can take from a sleeping thread what it caches (see
// docs/decisions/0004-cache-of-idle-threads.md); so the bounds hold while it runs:
//
// - where a share has no room for a block, its class is not cached, until classes that took no slow path of late make room for it
//   (cache_decay);
// - once the capacities of all caches have used up cache_total_bytes, because threads came when there
//   were fewer, shares are a fraction of what they were;
// - a cache with more than twice its share, beyond what its thread has earned, starts anew (cache_adjust).
//
// Unless somebody set cache_total_bytes, a thread that goes on working where its share is too small earns more beside it: a
// sixty-fourth of what it moves between its cache and its heap meanwhile, until both are CAPACITY_EARNED_BYTES; all threads
// together CAPACITY_EARNED_FACTOR times cache_total_bytes. Who sleeps after little work has nothing of it. What is earned does not
// count in the total, so the others' shares stay what they are (docs/decisions/0097-shares-are-earned.md).
#pragma once

#include "base/atomic.h"
#include "base/base.h"
#include "space/size_class.h"

// A class that caches anything needs one node (see cache.h).
#define NODE_SLOTS 64
#define NODE_BLOCKS_MAX (NODE_SLOTS - 1)
#define NODE_BYTES (NODE_SLOTS * sizeof(void *))

static inline uint64_t capacity_cost(uint64_t class_index, uint32_t capacity) {
    return capacity == 0 ? 0
                         : NODE_BYTES + (uint64_t)capacity * size_classes[class_index].block_bytes;
}

// Classes that the learner's options tell apart. Tiny: blocks to 1 KiB. Mid: to 32 KiB. Large: above.
enum class_group { CLASS_TINY, CLASS_MID, CLASS_LARGE, CLASS_GROUP_COUNT };

static inline enum class_group class_group_of(uint64_t class_index) {
    const uint32_t bytes = size_classes[class_index].block_bytes;
    return bytes <= KIB ? CLASS_TINY : bytes <= 32 * KIB ? CLASS_MID : CLASS_LARGE;
}

// Where it pays, the learner may let a cache have this many times cache_heap_bytes.
#define CAPACITY_BUDGET_FACTOR 2
#define CAPACITY_BUDGET_MOST UINT64_MAX  // as a budget: as much as may be learned

// What one cache may have beyond what the options say, and beyond its share.
struct capacity_claim {
    uint64_t budget_bytes;  // knob: what was learned, before sharing; 0: nothing
    uint64_t earned_bytes;  // whole steps of CAPACITY_EARNED_STEP
    uint64_t worked_bytes;  // towards the next one
    bool has_lapsed;        // some of it went: the cache starts anew (cache_adjust)
};

#define CAPACITY_EARNED_BYTES (1 * MIB)
#define CAPACITY_EARNED_STEP (16 * KIB)
#define CAPACITY_EARNED_FACTOR 2

// Whether threads may have more than their shares: who set cache_total_bytes wants it kept.
bool capacity_is_earning(void);

// What a cache in use has earned is no longer its own: all of the `bytes` that it may hold count. By the owner; where that is gone by
// who takes the cache, under the registry's lock.
void capacity_forfeit(struct capacity_claim *claim, uint64_t bytes);

// What of a cache's capacities, `bytes`, counts in the total.
uint64_t capacity_counted(const struct capacity_claim *claim, uint64_t bytes);

// The sums over all caches in use: of what their threads have earned; and of what counts, with the caches that keep blocks.
uint64_t capacity_sum_earned(void);
uint64_t capacity_sum_counted(void);

// Caches that belong to living threads. Relaxed: written under the registry's lock, read to share
// cache_total_bytes out; pairs with nothing.
HIDDEN extern _Atomic(uint32_t) cache_count_in_use;

// A thread takes, or leaves, a cache whose capacities cost so many bytes; 0 when these count while it waits for the
// next thread, because it keeps its blocks. `inherits`: what the last thread earned the next one has, as far as others have not
// earned it meanwhile. The registry's lock is held.
void capacity_join(struct capacity_claim *claim, uint64_t bytes, bool inherits);
void capacity_leave(const struct capacity_claim *claim, uint64_t bytes);

// Caches from which on cache_total_bytes counts by processors.
#define CACHES_OF_A_LARGE_MACHINE 32
// So much for each of them, or the option if that is more.
#define CAPACITY_PROCESSOR_BYTES (1 * MIB)

// To be called when there are so many: unless the option was set, it becomes what the machine's processors need. The
// registry's lock is held.
void capacity_fit_to_processors(void);

// Whether all caches together may hold more than cache_total_bytes, beyond what is earned while anything may be.
bool capacity_is_overdrawn(void);

// In the child of a fork: of all caches in use only the calling thread's counts, if it has one, with `claim` and `bytes`.
// `kept_bytes`: of those that keep blocks.
void capacity_only(bool has_cache, const struct capacity_claim *claim, uint64_t bytes,
                   uint64_t kept_bytes);

// What a cache may hold now. What was learned counts within what the options say at the moment: no less than
// cache_heap_bytes, no more than CAPACITY_BUDGET_FACTOR times that.
uint64_t capacity_allowed(const struct capacity_claim *claim);

// In a learned limit: capacity of the class was taken for another. It holds no more, whatever it would reach by itself.
#define CAPACITY_CUT (UINT32_C(1) << 31)

// Blocks that a class may grow to by itself in a cache that may hold `allowed` bytes: cache_class_bytes, in proportion to
// that, or `limit` if that is more. `limit`: what was learned, in blocks, within cache_class_bytes and cap_max_*;
// 0: nothing.
uint32_t capacity_limit(uint64_t allowed, uint64_t class_index, uint32_t limit);

// Blocks that a class may have by what the options say now, whatever the thread's share: more only where one was changed since.
uint32_t capacity_most(uint64_t class_index, uint32_t limit);

// The same of all classes together, but for the first block of each, in bytes.
uint64_t capacity_most_bytes(uint64_t budget);

// The functions below change the capacity of one class, and *bytes, the cost of all classes of the cache. `limit` is the
// learned one.

// The capacity of a class that had none; 0 when the thread's share has no room for one block.
uint32_t capacity_start(uint64_t *bytes, struct capacity_claim *claim, uint64_t class_index);

// What it begins with where the others have nothing; 0 when the share has no room for one block in any case.
uint32_t capacity_alone(const struct capacity_claim *claim, uint64_t class_index);

// Twice the capacity, or what the limits leave of it; 0 when it is at its limit.
uint32_t capacity_raise(uint64_t *bytes, struct capacity_claim *claim, uint64_t class_index,
                        uint32_t capacity, uint32_t limit);

// Less than it was.
uint32_t capacity_lower(uint64_t *bytes, const struct capacity_claim *claim, uint64_t class_index,
                        uint32_t capacity, uint32_t lower);

// Takes the class's capacity back.
void capacity_end(uint64_t *bytes, const struct capacity_claim *claim, uint64_t class_index,
                  uint32_t capacity);

// Whether a cache may hold much more than the share that its thread has now, and what that has earned.
bool capacity_is_exceeded(const struct capacity_claim *claim, uint64_t bytes);
