#include "thread/capacity.h"

#include "base/bits.h"
#include "config/options.h"
#include "os/os.h"
#include "thread/knobs.h"

_Atomic(uint32_t) cache_count_in_use;  // relaxed: see capacity.h

// Capacities of the caches in use and of those that keep blocks, in bytes, beyond what their threads have earned. Relaxed: each
// thread adds what its own cache may hold more, to share the total out; pairs with nothing.
static _Atomic(uint64_t) capacity_total;

// What the threads of all caches in use have earned. Relaxed: a bound that each may pass by what it adds at once; pairs with nothing.
static _Atomic(uint64_t) earned_total;

// A thread moves so many times what it earns.
#define WORK_FACTOR 64

// Blocks of a refill, or of an overflow, where the class may hold as many: about as many as the heap has in few words.
#define BLOCKS_MOVED 8

// The part of a share that is left when cache_total_bytes is used up.
#define OVERDRAWN_PART 8

uint64_t capacity_counted(const struct capacity_claim *claim, uint64_t bytes) {
    return bytes - least_u64(bytes, claim->earned_bytes);
}

uint64_t capacity_sum_earned(void) {
    return atomic_load_relaxed(&earned_total);
}

uint64_t capacity_sum_counted(void) {
    return atomic_load_relaxed(&capacity_total);
}

bool capacity_is_earning(void) {
    return options_origin(OPTION_cache_total_bytes) == OPTION_ORIGIN_DEFAULT;
}

// What is left to be earned, in whole steps.
static uint64_t unearned_bytes(void) {
    const uint64_t most =
        capacity_is_earning() ? CAPACITY_EARNED_FACTOR * option_live(cache_total_bytes) : 0;
    const uint64_t earned = capacity_sum_earned();
    return earned < most ? align_down(most - earned, CAPACITY_EARNED_STEP) : 0;
}

static void lose(struct capacity_claim *claim, uint64_t bytes) {
    claim->earned_bytes -= bytes;
    claim->has_lapsed |= bytes != 0;
}

void capacity_join(struct capacity_claim *claim, uint64_t bytes, bool inherits) {
    const uint64_t inherited = least_u64(claim->earned_bytes, inherits ? unearned_bytes() : 0);
    lose(claim, claim->earned_bytes - inherited);
    claim->worked_bytes = 0;
    atomic_add_relaxed(&earned_total, claim->earned_bytes);
    atomic_bump_owned(&cache_count_in_use, 1u);
    atomic_add_relaxed(&capacity_total, capacity_counted(claim, bytes));
}

void capacity_leave(const struct capacity_claim *claim, uint64_t bytes) {
    atomic_sub_relaxed(&earned_total, claim->earned_bytes);
    atomic_bump_owned(&cache_count_in_use, (uint32_t)-1);
    atomic_sub_relaxed(&capacity_total, capacity_counted(claim, bytes));
}

bool capacity_is_overdrawn(void) {
    // Where nobody may earn any more, what sleeping threads have earned counts. Signed: the child of a fork amid a change may be off.
    const uint64_t earned = capacity_is_earning() ? 0 : capacity_sum_earned();
    return (int64_t)(capacity_sum_counted() + earned) > (int64_t)option_live(cache_total_bytes);
}

void capacity_only(bool has_cache, const struct capacity_claim *claim, uint64_t bytes,
                   uint64_t kept_bytes) {
    atomic_store_relaxed(&cache_count_in_use, has_cache ? 1u : 0u);
    atomic_store_relaxed(&capacity_total, capacity_counted(claim, bytes) + kept_bytes);
    atomic_store_relaxed(&earned_total, claim->earned_bytes);
}

void capacity_fit_to_processors(void) {
    option_raise_default(OPTION_cache_total_bytes,
                         os_processors() * (uint64_t)CAPACITY_PROCESSOR_BYTES);
}

static uint64_t share_bytes(void) {
    const uint64_t threads = greatest_u64(1, atomic_load_relaxed(&cache_count_in_use));
    return option_live(cache_total_bytes) / threads;
}

void capacity_forfeit(struct capacity_claim *claim, uint64_t bytes) {
    atomic_add_relaxed(&capacity_total, bytes - capacity_counted(claim, bytes));
    atomic_sub_relaxed(&earned_total, claim->earned_bytes);
    lose(claim, claim->earned_bytes);
    claim->worked_bytes = 0;
}

// What the options and the learner allow a cache, whatever the others have.
static uint64_t unshared_bytes(const struct capacity_claim *claim) {
    const uint64_t heap_bytes = option_live(cache_heap_bytes);
    const uint64_t learned = least_u64(claim->budget_bytes, CAPACITY_BUDGET_FACTOR * heap_bytes);
    return greatest_u64(learned, heap_bytes);
}

uint64_t capacity_allowed(const struct capacity_claim *claim) {
    const uint64_t share = capacity_is_overdrawn() ? share_bytes() / OVERDRAWN_PART : share_bytes();
    return least_u64(unshared_bytes(claim), share + claim->earned_bytes);
}

// A size as it is for a cache of cache_heap_bytes, in proportion to what is allowed.
static uint64_t in_proportion(uint64_t bytes, uint64_t allowed) {
    const uint64_t whole = option_live(cache_heap_bytes);
    return allowed < whole ? bytes * allowed / whole : bytes;
}

static uint64_t block_bytes(uint64_t class_index) {
    return size_classes[class_index].block_bytes;
}

static uint32_t blocks_in(uint64_t bytes, uint64_t class_index) {
    return (uint32_t)(bytes / block_bytes(class_index));
}

static uint64_t class_bytes_max(uint64_t class_index) {
    switch (class_group_of(class_index)) {
    case CLASS_TINY:
        return option_live(cap_max_tiny);
    case CLASS_MID:
        return option_live(cap_max_mid);
    default:
        return option_live(cap_max_large);
    }
}

// As many nodes as a depot can count.
#define CAPACITY_MOST (UINT16_MAX * NODE_BLOCKS_MAX)

_Static_assert(CAPACITY_MOST < CAPACITY_CUT, "a limit has room for the bit");

uint32_t capacity_limit(uint64_t allowed, uint64_t class_index, uint32_t limit) {
    const uint64_t class_bytes = option_live(cache_class_bytes);
    const uint64_t most_bytes = greatest_u64(class_bytes, class_bytes_max(class_index));
    const uint64_t learned_bytes = (limit & ~CAPACITY_CUT) * block_bytes(class_index);
    const uint64_t own_bytes =
        (limit & CAPACITY_CUT) != 0 ? 0 : in_proportion(class_bytes, allowed);
    const uint64_t bytes = greatest_u64(own_bytes, least_u64(learned_bytes, most_bytes));
    return (uint32_t)least_u64(blocks_in(bytes, class_index), CAPACITY_MOST);
}

// Whether the class would have more than its capacity in a share that has earned all it may, and this one has not.
static bool may_earn(const struct capacity_claim *claim, uint64_t class_index, uint32_t capacity,
                     uint32_t limit) {
    const uint64_t most = least_u64(unshared_bytes(claim), CAPACITY_EARNED_BYTES);
    return unearned_bytes() != 0 && share_bytes() + claim->earned_bytes < most &&
           capacity_limit(most, class_index, limit) > capacity;
}

// The share has no room for a block of a class that has no capacity, and one passes it by; or for more than the class has, which has
// refilled and overflowed for want of it. `capacity_bytes`: of the whole cache.
static SLOW_PATH void earn(struct capacity_claim *claim, uint64_t capacity_bytes,
                           uint64_t class_index, uint32_t capacity, uint32_t limit) {
    if (!may_earn(claim, class_index, capacity, limit)) {
        return;
    }
    const uint64_t moved = capacity == 0 ? 1 : 2 * least_u64(capacity, BLOCKS_MOVED);
    claim->worked_bytes += moved * block_bytes(class_index);
    if (claim->worked_bytes >= WORK_FACTOR * (uint64_t)CAPACITY_EARNED_STEP) {
        const uint64_t counted = capacity_counted(claim, capacity_bytes);
        claim->worked_bytes -= WORK_FACTOR * (uint64_t)CAPACITY_EARNED_STEP;
        claim->earned_bytes += CAPACITY_EARNED_STEP;
        atomic_add_relaxed(&earned_total, CAPACITY_EARNED_STEP);
        atomic_sub_relaxed(&capacity_total, counted - capacity_counted(claim, capacity_bytes));
    }
}

uint32_t capacity_most(uint64_t class_index, uint32_t limit) {
    const uint64_t most = capacity_limit(option_live(cache_heap_bytes), class_index, limit);
    return (uint32_t)greatest_u64(most, greatest_u64(1, knobs_prewarm(class_index)));
}

uint64_t capacity_most_bytes(uint64_t budget) {
    return (budget == 0 ? 1 : CAPACITY_BUDGET_FACTOR) * option_live(cache_heap_bytes);
}

static uint32_t change(uint64_t *bytes, const struct capacity_claim *claim, uint64_t class_index,
                       uint32_t before, uint32_t capacity) {
    const uint64_t counted = capacity_counted(claim, *bytes);
    *bytes += capacity_cost(class_index, capacity) - capacity_cost(class_index, before);
    const uint64_t more = capacity_counted(claim, *bytes) - counted;
    if (more != 0) {
        atomic_add_relaxed(&capacity_total, more);
    }
    return capacity;
}

// The capacity that a class begins with where the others cost `bytes`; 0: there is no room.
static uint32_t first_capacity(uint64_t bytes, const struct capacity_claim *claim,
                               uint64_t class_index) {
    const uint64_t allowed = capacity_allowed(claim);
    const uint64_t used = bytes + NODE_BYTES;
    const uint64_t room = allowed > used ? allowed - used : 0;
    const uint64_t most = least_u64(room, in_proportion(option_live(cache_class_bytes), allowed));
    if (allowed < option_live(cache_heap_bytes) && blocks_in(most, class_index) == 0) {
        return 0;
    }
    const uint64_t start = in_proportion(option_live(cache_start_bytes), allowed);
    const uint64_t count = greatest_u64(1, blocks_in(least_u64(start, most), class_index));
    const uint64_t prewarm = least_u64(knobs_prewarm(class_index), blocks_in(room, class_index));
    return (uint32_t)least_u64(greatest_u64(count, prewarm), CAPACITY_MOST);
}

uint32_t capacity_start(uint64_t *bytes, struct capacity_claim *claim, uint64_t class_index) {
    const uint32_t capacity = first_capacity(*bytes, claim, class_index);
    if (unlikely(capacity == 0)) {
        earn(claim, *bytes, class_index, 0, 0);
        return 0;
    }
    return change(bytes, claim, class_index, 0, capacity);
}

uint32_t capacity_alone(const struct capacity_claim *claim, uint64_t class_index) {
    return first_capacity(0, claim, class_index);
}

uint32_t capacity_raise(uint64_t *bytes, struct capacity_claim *claim, uint64_t class_index,
                        uint32_t capacity, uint32_t limit) {
    const uint64_t allowed = capacity_allowed(claim);
    const uint32_t most = capacity_limit(allowed, class_index, limit);
    const uint32_t raised = (uint32_t)least_u64(most, 2 * (uint64_t)capacity);
    if (raised <= capacity || *bytes + (raised - capacity) * block_bytes(class_index) > allowed) {
        if (unlikely(allowed < CAPACITY_EARNED_BYTES)) {
            earn(claim, *bytes, class_index, capacity, limit);
        }
        return 0;
    }
    return change(bytes, claim, class_index, capacity, raised);
}

uint32_t capacity_lower(uint64_t *bytes, const struct capacity_claim *claim, uint64_t class_index,
                        uint32_t capacity, uint32_t lower) {
    return change(bytes, claim, class_index, capacity, lower);
}

void capacity_end(uint64_t *bytes, const struct capacity_claim *claim, uint64_t class_index,
                  uint32_t capacity) {
    change(bytes, claim, class_index, capacity, 0);
}

bool capacity_is_exceeded(const struct capacity_claim *claim, uint64_t bytes) {
    const uint64_t share = share_bytes();
    return share < option_live(cache_heap_bytes) && capacity_counted(claim, bytes) > 2 * share;
}
