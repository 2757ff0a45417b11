// What is done to a whole cache: decay, knobs that are turned, giving all back; and what others ask of it: counts, checks.
#include "thread/cache.h"

#include <limits.h>

#include "base/bits.h"
#include "base/check.h"

// Parked nodes of a class that a decision, or each of the two reasons of a decay, gives home because they are too many: 16,128 blocks. More
// wait for the next decay.
#define NODES_AT_ONCE 256

// Blocks in the node that top points into.
static unsigned node_count(struct thread_cache *cache, uint64_t class_index) {
    const struct magazine *magazine = &cache->magazines[class_index];
    if (magazine->node == NULL) {
        return 0;
    }
    void **top = top_of(cache, class_index);
    return (unsigned)(top - first_of(magazine));
}

// Gives the `count` oldest blocks of the node back.
static void flush_node(struct thread_cache *cache, uint64_t class_index, unsigned count) {
    const struct magazine *magazine = &cache->magazines[class_index];
    const unsigned held = node_count(cache, class_index);
    cache_give_to_heap(cache, first_of(magazine), count);
    drop_oldest(cache, class_index, held, count);
}

static void empty_magazine(struct thread_cache *cache, uint64_t class_index) {
    struct magazine *magazine = &cache->magazines[class_index];
    while (magazine->depot != NULL) {
        cache_flush_depot_node(cache, class_index);
    }
    const unsigned held = node_count(cache, class_index);
    if (held > 0) {
        flush_node(cache, class_index, held);
    }
    magazine->depot_low = 0;
    magazine->brought = 0;
}

// Fits depot and node to a capacity that is less than they were made for.
static void fit_to_capacity(struct thread_cache *cache, uint64_t class_index) {
    struct magazine *magazine = &cache->magazines[class_index];
    const uint8_t floor = floor_for(magazine->capacity);
    unsigned left = floor == 0 ? NODES_AT_ONCE : UINT_MAX;
    while (magazine->depot != NULL && left-- > 0 &&
           (parked(magazine) + 1) * NODE_BLOCKS_MAX > magazine->capacity) {
        cache_flush_depot_node(cache, class_index);
    }
    magazine->depot_low = (uint16_t)least_u64(magazine->depot_low, parked(magazine));
    if (floor <= floor_of(magazine)) {
        return;
    }
    const unsigned held = node_count(cache, class_index);
    const unsigned kept = held < magazine->capacity ? held : magazine->capacity;
    if (held > kept) {
        flush_node(cache, class_index, held - kept);
    }
    void **node = magazine->node;
    __builtin_memmove(node + floor + 1, first_of(magazine), kept * sizeof *node);
    __builtin_memset(node, 0, (size_t)(floor + 1) * sizeof *node);
    atomic_store_relaxed(&magazine->floor, floor);
    install_node(cache, class_index, node, kept);
}

static void lower_capacity(struct thread_cache *cache, uint64_t class_index, uint32_t blocks) {
    struct magazine *magazine = &cache->magazines[class_index];
    if (magazine->capacity > blocks) {
        magazine->capacity = capacity_lower(&cache->capacity_bytes, &cache->claim, class_index,
                                            magazine->capacity, blocks);
        fit_to_capacity(cache, class_index);
    }
}

void cache_set_limit(struct thread_cache *cache, uint64_t class_index, uint32_t limit) {
    cache->magazines[class_index].limit = limit;
    lower_capacity(cache, class_index, limit & ~CAPACITY_CUT);
}

// The class starts anew at its next use.
static void close_magazine(struct thread_cache *cache, uint64_t class_index) {
    struct magazine *magazine = &cache->magazines[class_index];
    empty_magazine(cache, class_index);
    set_top(cache, class_index, NO_TOP);
    cache_give_node(cache, magazine->node);
    magazine->node = NULL;
    capacity_end(&cache->capacity_bytes, &cache->claim, class_index, magazine->capacity);
    magazine->capacity = 0;
}

static void close_magazines(struct thread_cache *cache) {
    for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        if (cache->magazines[i].node != NULL) {
            close_magazine(cache, i);
        }
    }
}

void cache_reset_knobs(struct thread_cache *cache) {
    bool is_reset = cache->claim.budget_bytes == 0;
    cache->claim.budget_bytes = 0;
    for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        is_reset = is_reset && cache->magazines[i].limit == 0;
        cache->magazines[i].limit = 0;
    }
    if (!is_reset) {
        close_magazines(cache);
    }
}

void cache_adjust(struct thread_cache *cache) {
    if (unlikely(cache->claim.earned_bytes != 0) && !capacity_is_earning()) {
        capacity_forfeit(&cache->claim, cache->capacity_bytes);
    }
    if (unlikely(cache->claim.has_lapsed) ||
        unlikely(capacity_is_exceeded(&cache->claim, cache->capacity_bytes))) {
        close_magazines(cache);
        cache->claim.has_lapsed = false;
    }
}

// An option may have been made less while the thread ran.
static void fit_to_options(struct thread_cache *cache) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        struct magazine *magazine = &cache->magazines[i];
        if (magazine->node == NULL) {
            continue;
        }
        lower_capacity(cache, i, capacity_most(i, magazine->limit));
        bytes += (magazine->capacity - 1) * (uint64_t)size_classes[i].block_bytes;
    }
    if (unlikely(bytes > capacity_most_bytes(cache->claim.budget_bytes))) {
        close_magazines(cache);
    }
}

void cache_decay(struct thread_cache *cache) {
    const bool lacks_room = cache->lacks_room;
    cache->lacks_room = false;
    cache->slabs_wanted = 0;
    cache_adjust(cache);
    fit_to_options(cache);
    for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        struct magazine *magazine = &cache->magazines[i];
        if (magazine->node == NULL) {
            continue;
        }
        const bool at_rest = (magazine->active & MAGAZINE_ACTIVE) == 0;
        if (lacks_room && at_rest) {
            // No less than it began with: it may be one that its node serves whole.
            const uint32_t first = capacity_alone(&cache->claim, i);
            lower_capacity(cache, i, first == 0 ? 1 : first);
        }
        fit_to_capacity(cache, i);
        const unsigned idle = magazine->depot_low;
        for (unsigned left = (unsigned)least_u64(idle, NODES_AT_ONCE); left > 0; left--) {
            cache_flush_depot_node(cache, i);
        }
        const unsigned held = node_count(cache, i);
        magazine->active &= MAGAZINE_DECAYED | MAGAZINE_TOUCHED;
        if (at_rest && held > 1) {
            flush_node(cache, i, held / 2);
            magazine->active |= MAGAZINE_DECAYED;
        }
        magazine->depot_low = (uint16_t)parked(magazine);
    }
}

void cache_empty(struct thread_cache *cache) {
    const bool was_entered = cache_enter(cache);
    for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        empty_magazine(cache, i);
    }
    cache_leave(cache, was_entered);
}

uint64_t cache_block_count(const struct thread_cache *cache, uint64_t class_index) {
    const struct magazine *magazine = &cache->magazines[class_index];
    // Field by field as found: the owner may be changing them. The top's place in its node is
    // meaningful whichever node it is.
    void **top = top_of((struct thread_cache *)(uintptr_t)cache, class_index);
    if (top == NO_TOP) {
        return 0;
    }
    const uint64_t slot = ((uintptr_t)top - 1) % NODE_BYTES / sizeof(void *) + 1;
    const uint64_t below = floor_of(magazine) + 1;
    return (slot > below ? slot - below : 0) + (uint64_t)parked(magazine) * NODE_BLOCKS_MAX;
}

uint64_t cache_structure_bytes(const struct thread_cache *cache) {
    uint64_t nodes = empty_node_count(cache);
    for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        void **top = top_of((struct thread_cache *)(uintptr_t)cache, i);
        nodes += top == NO_TOP ? 0 : 1 + parked(&cache->magazines[i]);
    }
    return sizeof *cache + nodes * NODE_BYTES;
}

static void check_magazine(struct check *check, const struct thread_cache *cache,
                           uint64_t class_index) {
    const struct magazine *magazine = &cache->magazines[class_index];
    const unsigned floor = floor_of(magazine);
    void **top = top_of((struct thread_cache *)(uintptr_t)cache, class_index);
    void **first = first_of(magazine);
    check->structure = "magazine of class";
    check->where = class_index;
    if (magazine->node == NULL) {
        check_equal(check, "without a node there is no depot", (uintptr_t)magazine->depot, 0);
        check_equal(check, "without a node there is no capacity", magazine->capacity, 0);
        return;
    }
    check_that(check, top >= first && top <= magazine->node + NODE_SLOTS, "top is in its node",
               (uintptr_t)top, (uintptr_t)magazine->node);
    check_equal(check, "floor is the capacity's", floor, floor_for(magazine->capacity));
    if (floor < NODE_SLOTS) {
        check_equal(check, "the slot at the floor is NULL", (uintptr_t)magazine->node[floor], 0);
    }
    unsigned depot_count = 0;
    for (void **full = magazine->depot; full != NULL && depot_count <= parked(magazine);
         full = (void **)full[0]) {
        depot_count++;
    }
    check_equal(check, "depot_count == nodes in the depot", parked(magazine), depot_count);
    check_that(check, depot_count == 0 || floor == 0, "the depot is empty while the floor is not 0",
               depot_count, floor);
    check_that(check, magazine->depot_low <= parked(magazine), "depot_low <= depot_count",
               magazine->depot_low, parked(magazine));
}

size_t cache_check(const struct thread_cache *cache) {
    struct check check = {"thread cache", cache->heap.id, 0};
    uint64_t capacity_bytes = 0;
    for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        check_magazine(&check, cache, i);
        if (cache->magazines[i].node != NULL) {
            capacity_bytes += capacity_cost(i, cache->magazines[i].capacity);
        }
    }
    check.structure = "thread cache";
    check.where = cache->heap.id;
    unsigned empty_nodes = 0;
    for (void **node = cache->empty_nodes; node != NULL && empty_nodes <= EMPTY_NODES_MOST;
         node = (void **)node[0]) {
        empty_nodes++;
    }
    check_equal(&check, "empty_node_count == nodes in no use", empty_node_count(cache),
                empty_nodes);
    check_equal(&check, "capacity_bytes == bytes the magazines may cache", cache->capacity_bytes,
                capacity_bytes);
    return check.violations;
}
