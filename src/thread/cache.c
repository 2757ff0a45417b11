#include "thread/cache.h"

#include "base/bits.h"
#include "config/options.h"
#include "heap/heap_purge.h"
#include "heap/quarantine.h"
#include "heap/slab.h"
#include "os/os.h"
#include "space/huge_pages.h"
#include "space/metadata.h"

// The node of a class that has none: its last slot is NULL and top is behind it.
static void *const no_node[NODE_SLOTS] __attribute__((aligned(512))) = {NULL};
INSPECTABLE(no_node, cache_no_node);

// The map of a cache that must not look anything up: only NULL passes address_max == 0.
static page_entry_atomic no_page_map[1];

void (*cache_slab_bringer)(struct thread_cache *cache, uint64_t class_index);

#define CACHE_WITHOUT_HEAP                                                             \
    {                                                                                  \
        .top = {[0 ... PAGE_KIND_COUNT - 1] = NO_TOP},                                 \
        .shadow_top = {[0 ... PAGE_KIND_COUNT - 1] = NO_TOP}, .page_map = no_page_map, \
        .diverted = 1,                                                                 \
    }
const struct thread_cache cache_of_new_thread = CACHE_WITHOUT_HEAP;

__thread struct thread_cache *thread_cache __attribute__((tls_model("initial-exec"))) =
    (struct thread_cache *)(uintptr_t)&cache_of_new_thread;

static void switch_tops_off(void ***tops_of_kinds) {
    for (size_t kind = 0; kind < PAGE_KIND_COUNT; kind++) {
        slot_store(tops_of_kinds, kind, NO_TOP);
    }
}

void cache_init(struct thread_cache *cache, uint32_t id) {
    heap_init(&cache->heap, id);
    huge_pages_count_heap();
    switch_tops_off(cache->top);
    switch_tops_off(cache->shadow_top);
    // Without the flat map the fast path of free must not look anything up.
    cache->address_max = page_map_flat == NULL ? 0 : ((uintptr_t)1 << ADDRESS_BITS) - 1;
    cache->page_map = page_map_flat == NULL ? no_page_map : page_map_flat;
    cache->checked = heap_checks_frees();
    cache->learner_window = LEARNER_WINDOW_EVENTS;
    cache_divert(cache, cache->checked || option_live(research) != 0);
}

// magazine.brought: a node was brought.
#define REFILLS_ARE_WHOLE UINT8_MAX
#define REFILL_FIRST 8

// ---- Nodes ----

_Static_assert(NODE_BYTES == METADATA_ALIGNED_BYTES, "a full node is told by its end's alignment");

// From the stack of nodes in no use, which has one.
static inline void **pop_empty(struct thread_cache *cache) {
    void **node = cache->empty_nodes;
    cache->empty_nodes = (void **)node[0];
    atomic_bump_owned(&cache->empty_node_count, (uint32_t)-1);
    return node;
}

static inline void push_empty(struct thread_cache *cache, void **node) {
    node[0] = cache->empty_nodes;
    cache->empty_nodes = node;
    atomic_bump_owned(&cache->empty_node_count, 1u);
}

static void **take_node(struct thread_cache *cache) {
    if (cache->empty_nodes == NULL) {
        unsigned count;
        cache->empty_nodes = metadata_take_aligned(&count);
        if (unlikely(cache->empty_nodes == NULL)) {
            return NULL;
        }
        atomic_store_relaxed(&cache->empty_node_count, count);
    }
    return pop_empty(cache);
}

void cache_give_node(struct thread_cache *cache, void **node) {
    push_empty(cache, node);
    if (empty_node_count(cache) <= EMPTY_NODES_MOST) {
        return;
    }
    void **last = node;
    for (unsigned i = 1; i < METADATA_ALIGNED_BATCH; i++) {
        last = (void **)last[0];
    }
    cache->empty_nodes = (void **)last[0];
    last[0] = NULL;
    atomic_bump_owned(&cache->empty_node_count, (uint32_t)-METADATA_ALIGNED_BATCH);
    metadata_give_aligned(node);
}

// The class's first node; false when there is no memory for it, or the thread's share has no room.
static bool open_magazine(struct thread_cache *cache, uint64_t class_index) {
    struct magazine *magazine = &cache->magazines[class_index];
    const uint32_t capacity = capacity_start(&cache->capacity_bytes, &cache->claim, class_index);
    if (unlikely(capacity == 0)) {
        cache->lacks_room |= capacity_alone(&cache->claim, class_index) != 0;
        return false;
    }
    void **node = take_node(cache);
    if (unlikely(node == NULL)) {
        capacity_end(&cache->capacity_bytes, &cache->claim, class_index, capacity);
        return false;
    }
    magazine->capacity = capacity;
    // What came one by one while the class was watched is part of its first node.
    magazine->brought = (uint8_t)least_u64(magazine->watched, REFILLS_ARE_WHOLE - 1);
    magazine->watched = 0;
    atomic_store_relaxed(&magazine->floor, floor_for(capacity));
    // Below the floor cache_freed_lately() must find no block of the node's former life.
    __builtin_memset(node, 0, floor_of(magazine) * sizeof *node);
    install_node(cache, class_index, node, 0);
    return true;
}

// ---- Between the magazine and the heap ----

void cache_collect(struct thread_cache *cache) {
    struct heap *heap = &cache->heap;
    const size_t budget_bytes = heap->budget_bytes;
    heap->budget_bytes = HEAP_BUDGET_CALL;
    heap_collect(heap);
    if (unlikely(heap->budget_bytes == 0)) {
        heap->overfull = heap->overfull == NULL ? heap : heap->overfull;
        heap->wants_visit = true;
        heap_wait_with_rest(heap);
    }
    heap->budget_bytes = budget_bytes;
}

static unsigned take_from_heap(struct thread_cache *cache, uint64_t class_index, unsigned want,
                               void **blocks) {
    struct heap *heap = &cache->heap;
    lock_acquire(&heap->lock);
    if (heap_has_remote(heap)) {
        cache_collect(cache);
    }
    // Quarantined blocks are their heap's to know of.
    if (unlikely(heap_wants_slab(heap, class_index)) && !cache->checked) {
        cache->slabs_wanted++;
        if (!heap_has_blocks(heap, class_index) && !heap_use_spare(heap, class_index) &&
            likely(cache_slab_bringer != NULL)) {
            cache_slab_bringer(cache, class_index);
        }
    }
    const unsigned got = heap_take(heap, class_index, want, blocks);
    lock_release(&heap->lock);
    return got;
}

void cache_give_to_heap(struct thread_cache *cache, void *const *blocks, unsigned count) {
    lock_acquire(&cache->heap.lock);
    heap_put(&cache->heap, blocks, count);
    lock_release(&cache->heap.lock);
}

_Static_assert((LEARNER_WINDOW_EVENTS_MAX + LEARNER_PATIENCE_EVENTS) * NODE_BLOCKS_MAX <=
                   UINT16_MAX,
               "the signals count the blocks of the longest window");

// One more refill or flush of the window, which it ends from `patience` events beyond its length on.
static void note_event(struct thread_cache *cache, uint32_t patience) {
    cache->learner_events++;
    if (unlikely(cache->learner_events >= cache->learner_window + patience)) {
        cache->learner_is_due = 1;
    }
}

static void note_refill(struct thread_cache *cache, struct magazine *magazine, unsigned count) {
    magazine->refilled = 1;
    magazine->signals.refills++;
    magazine->signals.refilled_blocks += (uint16_t)count;
    note_event(cache, 0);
}

static void note_flush(struct thread_cache *cache, struct magazine *magazine, unsigned count) {
    magazine->signals.flushes++;
    magazine->signals.flushed_blocks += (uint16_t)count;
    note_event(cache, LEARNER_PATIENCE_EVENTS);
}

static uint64_t whole_refill(const struct magazine *magazine) {
    return least_u64(least_u64(magazine->capacity, NODE_BLOCKS_MAX), option_live(refill_blocks));
}

// The first refills are small, because the thread may end soon: each brings as many blocks as came before it, until all of
// them make a whole one. So the blocks in circulation stay a multiple of a node, and cross its border as seldom, as long as the
// heap has as many in few words (docs/decisions/0056-few-words-at-a-time.md).
uint64_t cache_refill_blocks(const struct thread_cache *cache, uint64_t class_index) {
    const struct magazine *magazine = &cache->magazines[class_index];
    const uint64_t whole = whole_refill(magazine);
    if (magazine->brought == REFILLS_ARE_WHOLE) {
        return whole;
    }
    const uint64_t rest = whole > magazine->brought ? whole - magazine->brought : 1;
    const uint64_t wanted = greatest_u64(magazine->brought, REFILL_FIRST);
    return least_u64(rest, greatest_u64(wanted, knobs_prewarm(class_index)));
}

static void note_brought(struct magazine *magazine, uint64_t blocks) {
    if (magazine->brought != REFILLS_ARE_WHOLE) {
        const uint64_t brought = magazine->brought + blocks;
        magazine->brought = brought < whole_refill(magazine) ? (uint8_t)brought : REFILLS_ARE_WHOLE;
    }
}

// Fills the empty node, and returns the block that is used first: those of a slab are handed out in rising order.
static void *refill(struct thread_cache *cache, uint64_t class_index) {
    struct magazine *magazine = &cache->magazines[class_index];
    void **first = first_of(magazine);
    const uint64_t want = cache_refill_blocks(cache, class_index);
    const unsigned ready = (unsigned)least_u64(want, knobs_prewarm(class_index));
    note_brought(magazine, want);
    unsigned got = 0;
    unsigned step;
    do {
        step = take_from_heap(cache, class_index, (unsigned)want - got, first + got);
        got += step;
    } while (step != 0 && unlikely(got < ready));
    if (got == 0) {
        return NULL;
    }
    set_top(cache, class_index, first + got - 1);
    note_refill(cache, magazine, got);
    return first[got - 1];
}

// install_node() of a class that parks nodes: its floor is 0. `tops`: tops_of() the cache.
static inline void install_whole_node(struct magazine *magazine, void ***tops, uint64_t class_index,
                                      void **node, unsigned count) {
    magazine->node = node;
    node[0] = NULL;
    slot_store(tops, class_index, node + 1 + count);
}

// The node parked last becomes the one that top points into, less its last block, which is handed out. Returns the empty one
// that was.
static inline void **unpark_node(struct thread_cache *cache, void ***tops, uint64_t class_index) {
    struct magazine *magazine = &cache->magazines[class_index];
    void **empty = magazine->node;
    void **full = magazine->depot;
    const unsigned left = parked(magazine) - 1;
    magazine->depot = (void **)full[0];
    atomic_store_relaxed(&magazine->depot_count, (uint16_t)left);
    if (left < magazine->depot_low) {
        magazine->depot_low = (uint16_t)left;
    }
    install_whole_node(magazine, tops, class_index, full, NODE_BLOCKS_MAX - 1);
    magazine->active = MAGAZINE_ACTIVE | MAGAZINE_TOUCHED;
    heap_count(&cache->heap, COUNTER_depot_swaps, 1);
    return empty;
}

// The depot is not empty.
static void *pop_depot(struct thread_cache *cache, uint64_t class_index) {
    cache_give_node(cache, unpark_node(cache, tops_of(cache), class_index));
    return cache->magazines[class_index].node[NODE_BLOCKS_MAX];
}

// A program may live on its depots alone: every so many swaps it looks whether a tick is due, and then takes the slow
// path, which ticks.
#define SWAPS_PER_LOOK 64

static bool is_time_to_tick(const struct thread_cache *cache) {
    const _Atomic(uint64_t) *swaps = &cache->heap.counters.value[COUNTER_depot_swaps];
    return atomic_load_relaxed((_Atomic(uint64_t) *)(uintptr_t)swaps) % SWAPS_PER_LOOK == 0 &&
           os_ticks() - cache->pace_ticks >= OS_TICKS_PACE;
}

// cache_pop_depot() where too many nodes are in no use: some are given back.
static MIDDLE_PATH void *pop_depot_and_give(struct thread_cache *cache, uint64_t class_index) {
    const bool was_entered = cache_enter_real(cache);
    void *block = pop_depot(cache, class_index);
    cache_leave_real(cache, was_entered);
    return block;
}

void *cache_pop_depot(struct thread_cache *cache, uint64_t class_index) {
    if (cache->magazines[class_index].depot == NULL || unlikely(cache_is_diverted(cache)) ||
        is_time_to_tick(cache)) {
        return NULL;
    }
    if (unlikely(empty_node_count(cache) >= EMPTY_NODES_MOST)) {
        return pop_depot_and_give(cache, class_index);
    }
    const bool was_entered = cache_enter_real(cache);
    push_empty(cache, unpark_node(cache, cache_class_tops(cache->top), class_index));
    cache_leave_real(cache, was_entered);
    return cache->magazines[class_index].node[NODE_BLOCKS_MAX];
}

// Parks the full node. The empty one in its place has `count` blocks.
static inline void park_full(struct thread_cache *cache, void ***tops, uint64_t class_index,
                             void **empty, unsigned count) {
    struct magazine *magazine = &cache->magazines[class_index];
    void **full = magazine->node;
    full[0] = magazine->depot;
    magazine->depot = full;
    atomic_bump_owned(&magazine->depot_count, (uint16_t)1);
    install_whole_node(magazine, tops, class_index, empty, count);
    heap_count(&cache->heap, COUNTER_depot_swaps, 1);
}

// Parks the full node. False when there is no memory for one to replace it with.
static bool park_node(struct thread_cache *cache, uint64_t class_index) {
    void **empty = take_node(cache);
    if (unlikely(empty == NULL)) {
        return false;
    }
    park_full(cache, tops_of(cache), class_index, empty, 0);
    return true;
}

static bool depot_has_room(const struct magazine *magazine) {
    return floor_of(magazine) == 0 &&
           (parked(magazine) + 2) * NODE_BLOCKS_MAX <= magazine->capacity;
}

// Samples of a node: five apart, since in the nodes that a program frees with a tree of its own the same comes again at powers of two.
#define SAMPLES 4
#define SAMPLE_STRIDE 10
_Static_assert(1 + SAMPLE_STRIDE / 2 + (SAMPLES - 1) * SAMPLE_STRIDE + 1 <= NODE_BLOCKS_MAX,
               "all samples are in the node");

FAST_PATH uintptr_t sample_differs(void *const *samples, size_t i) {
    void *const *const block = samples + i * SAMPLE_STRIDE;
    return (uintptr_t)block[0] ^ (uintptr_t)block[1];
}

// How many of the samples lie in another page than the block behind them.
static unsigned count_apart(void *const *samples) {
    unsigned count = 0;
    for (size_t i = 0; i < SAMPLES; i++) {
        count += sample_differs(samples, i) >> PAGE_SHIFT != 0;
    }
    return count;
}

// Whether any does. Written out: it is asked of each node that is parked behind SCATTERED_NODES others.
_Static_assert(SAMPLES == 4, "is_any_apart() asks all of them");
FAST_PATH bool is_any_apart(void *const *samples) {
    return (sample_differs(samples, 0) | sample_differs(samples, 1) | sample_differs(samples, 2) |
            sample_differs(samples, 3)) >>
               PAGE_SHIFT !=
           0;
}

static bool are_own(const struct thread_cache *cache, void *const *samples) {
    for (unsigned i = 0; i < SAMPLES; i++) {
        const struct run *slab = slab_find((uintptr_t)samples[(size_t)i * SAMPLE_STRIDE]);
        if (slab == NULL || atomic_load_relaxed(&slab->heap) != &cache->heap) {
            return false;
        }
    }
    return true;
}

// Whether the blocks of a node that may_be_scattered() lie in other pages than those freed next to them, as far as all samples tell. Where
// some are another heap's this one would not hand them out as neighbours.
static bool is_scattered(const struct thread_cache *cache, void *const *node) {
    void *const *const samples = node + 1;
    return count_apart(samples) + count_apart(samples + SAMPLE_STRIDE / 2) >= SAMPLES &&
           are_own(cache, samples);
}

// Of nodes whose blocks lie scattered so many are parked: a program that replaces blocks in no order moves back and forth over a few nodes,
// and each flush is one of its slowest calls.
#define SCATTERED_NODES 4

// Half of the samples tell that most nodes are not.
FAST_PATH bool may_be_scattered(const struct magazine *magazine) {
    return parked(magazine) >= SCATTERED_NODES && unlikely(is_any_apart(magazine->node + 1));
}

// Blocks that were freed in no order of their addresses would be handed out in none. A few nodes of such are parked, for what
// comes and goes one by one; of what is freed in bulk the slabs hand out neighbours (docs/decisions/0076-blocks-freed-in-no-order.md).
static bool is_worth_parking(const struct thread_cache *cache, const struct magazine *magazine) {
    return !may_be_scattered(magazine) || !is_scattered(cache, magazine->node);
}

// Parks the full node of a class that is not diverted; the block is the first in the empty one.
static inline void park_and_push(struct thread_cache *cache, uint64_t class_index, void **empty,
                                 void *block) {
    empty[1] = block;
    park_full(cache, cache_class_tops(cache->top), class_index, empty, 1);
    cache->magazines[class_index].active = MAGAZINE_ACTIVE | MAGAZINE_TOUCHED;
}

// cache_push_depot() where the node may be scattered, or there is no empty one at hand.
static MIDDLE_PATH bool push_depot_slow(struct thread_cache *cache, uint64_t class_index,
                                        void *block) {
    if (!is_worth_parking(cache, &cache->magazines[class_index])) {
        return false;
    }
    const bool was_entered = cache_enter_real(cache);
    void **empty = take_node(cache);
    if (likely(empty != NULL)) {
        park_and_push(cache, class_index, empty, block);
    }
    cache_leave_real(cache, was_entered);
    return empty != NULL;
}

bool cache_push_depot(struct thread_cache *cache, uint64_t class_index, void *block) {
    const struct magazine *magazine = &cache->magazines[class_index];
    if (magazine->node == NULL || unlikely(cache_is_diverted(cache)) || is_time_to_tick(cache) ||
        !depot_has_room(magazine)) {
        return false;
    }
    // What follows calls nothing, and so saves no registers.
    if (unlikely(cache->empty_nodes == NULL) || may_be_scattered(magazine)) {
        return push_depot_slow(cache, class_index, block);
    }
    const bool was_entered = cache_enter_real(cache);
    park_and_push(cache, class_index, pop_empty(cache), block);
    cache_leave_real(cache, was_entered);
    return true;
}

// A flush gives few blocks of few words back, so that no free takes long; while the thread does nothing but free, each gives
// twice as many as the last, because fewer flushes cost less (docs/decisions/0033-how-much-a-flush-gives-back.md).
#define FLUSH_BLOCKS_FIRST 8

static uint32_t mark_of(const void *block) {
    return (uint32_t)((uintptr_t)block / BLOCK_ALIGN);
}

// Whether the block that came first after the last flush is where it was put: nothing below it was taken since.
static bool only_frees_came(const struct magazine *magazine) {
    return magazine->flush_count != 0 &&
           magazine->flush_count <= NODE_BLOCKS_MAX - floor_of(magazine) &&
           mark_of(magazine->node[NODE_SLOTS - magazine->flush_count]) == magazine->flush_mark;
}

// How many of `count` blocks a flush gives back whatever they cost; 0 where it takes those of few words.
static unsigned growing_flush(const struct magazine *magazine, unsigned count) {
    return only_frees_came(magazine) ? (unsigned)least_u64(count, 2u * magazine->flush_count) : 0;
}

static unsigned give_few(struct thread_cache *cache, void *const *blocks, unsigned most) {
    lock_acquire(&cache->heap.lock);
    const unsigned given = heap_put_few(&cache->heap, blocks, most);
    lock_release(&cache->heap.lock);
    return given;
}

// Gives the oldest blocks of a full node back. Returns how many.
static unsigned flush_full_node(struct thread_cache *cache, uint64_t class_index) {
    struct magazine *magazine = &cache->magazines[class_index];
    void **first = first_of(magazine);
    const unsigned count = NODE_BLOCKS_MAX - floor_of(magazine);
    unsigned flushed = growing_flush(magazine, count);
    if (flushed != 0) {
        cache_give_to_heap(cache, first, flushed);
    } else {
        flushed = give_few(cache, first, (unsigned)least_u64((count + 1) / 2, FLUSH_BLOCKS_FIRST));
    }
    magazine->flush_count = (uint8_t)flushed;
    drop_oldest(cache, class_index, count, flushed);
    return flushed;
}

void cache_flush_depot_node(struct thread_cache *cache, uint64_t class_index) {
    struct magazine *magazine = &cache->magazines[class_index];
    void **full = magazine->depot;
    magazine->depot = (void **)full[0];
    atomic_bump_owned(&magazine->depot_count, (uint16_t)-1);
    cache_give_to_heap(cache, full + 1, NODE_BLOCKS_MAX);
    cache_give_node(cache, full);
}

// The magazine of a class that caches fewer than 63 blocks may now cache more: its blocks move down.
static void lower_floor(struct thread_cache *cache, uint64_t class_index) {
    struct magazine *magazine = &cache->magazines[class_index];
    void **first = first_of(magazine);
    const unsigned count = NODE_BLOCKS_MAX - floor_of(magazine);
    atomic_store_relaxed(&magazine->floor, floor_for(magazine->capacity));
    __builtin_memmove(first_of(magazine), first, count * sizeof *first);
    install_node(cache, class_index, magazine->node, count);
}

// The capacity of a class that refills and overflows in turn. False when it is at its limit.
static bool raise_capacity(struct thread_cache *cache, uint64_t class_index) {
    struct magazine *magazine = &cache->magazines[class_index];
    const uint32_t raised = capacity_raise(&cache->capacity_bytes, &cache->claim, class_index,
                                           magazine->capacity, magazine->limit);
    if (raised == 0) {
        return false;
    }
    magazine->capacity = raised;
    return true;
}

// Makes room in a full node. Afterwards a push succeeds.
static void make_room(struct thread_cache *cache, uint64_t class_index) {
    struct magazine *magazine = &cache->magazines[class_index];
    if (!is_worth_parking(cache, magazine)) {
        // Not for want of capacity: the learner is not told.
        flush_full_node(cache, class_index);
        return;
    }
    if (depot_has_room(magazine) && park_node(cache, class_index)) {
        return;
    }
    if (magazine->refilled && raise_capacity(cache, class_index)) {
        magazine->refilled = 0;
        if (floor_of(magazine) > 0) {
            lower_floor(cache, class_index);
            return;
        }
        if (depot_has_room(magazine) && park_node(cache, class_index)) {
            return;
        }
    }
    magazine->refilled = 0;
    if (magazine->depot != NULL && growing_flush(magazine, NODE_BLOCKS_MAX) == NODE_BLOCKS_MAX) {
        // An older node goes, the one just filled is warm.
        note_flush(cache, magazine, NODE_BLOCKS_MAX);
        cache_flush_depot_node(cache, class_index);
        if (park_node(cache, class_index)) {
            magazine->flush_count = NODE_BLOCKS_MAX;
            return;
        }
    }
    note_flush(cache, magazine, flush_full_node(cache, class_index));
}

static void note_slow_path(struct thread_cache *cache, struct magazine *magazine) {
    magazine->active = MAGAZINE_ACTIVE | MAGAZINE_TOUCHED;
    atomic_bump_owned(&cache->activity, 1);
}

static void *take_one(struct thread_cache *cache, uint64_t class_index) {
    void *block;
    return take_from_heap(cache, class_index, 1, &block) == 1 ? block : NULL;
}

// Whether the class has a node by now. False when there is no memory for one, and while the class is
// watched: its first operations go to the heap one by one, so that each of those frees is checked
// against the bitmap at once, and a class of few blocks costs no node.
static bool has_node(struct thread_cache *cache, uint64_t class_index) {
    struct magazine *magazine = &cache->magazines[class_index];
    if (likely(magazine->node != NULL)) {
        return true;
    }
    if (magazine->watched < option_live(watched_operations)) {
        magazine->watched++;
        return false;
    }
    return open_magazine(cache, class_index);
}

static void *alloc_magazine(struct thread_cache *cache, uint64_t class_index) {
    struct magazine *magazine = &cache->magazines[class_index];
    void **top = top_of(cache, class_index);
    if (unlikely(top[-1] != NULL)) {
        set_top(cache, class_index, top - 1);
        return top[-1];
    }
    note_slow_path(cache, magazine);
    if (magazine->depot != NULL) {
        return pop_depot(cache, class_index);
    }
    return has_node(cache, class_index) ? refill(cache, class_index) : take_one(cache, class_index);
}

bool cache_has_unseen(const struct thread_cache *cache, uint64_t class_index) {
    return top_of((struct thread_cache *)(uintptr_t)cache, class_index)[-1] != NULL;
}

void *cache_alloc_slow(struct thread_cache *cache, uint64_t class_index) {
    if (unlikely(cache->checked)) {
        atomic_bump_owned(&cache->activity, 1);
        return take_one(cache, class_index);
    }
    return alloc_magazine(cache, class_index);
}

// False when the slab is another heap's.
static bool free_to_own_heap(struct thread_cache *cache, struct run *slab, void *block) {
    struct heap *heap = &cache->heap;
    if (atomic_load_relaxed(&slab->heap) != heap) {
        return false;
    }
    lock_acquire(&heap->lock);
    // The slab may have moved to another heap meanwhile.
    const bool is_own = atomic_load_relaxed(&slab->heap) == heap;
    if (likely(is_own)) {
        heap_free_checked(heap, slab, block);
    }
    lock_release(&heap->lock);
    return is_own;
}

// What goes to another heap goes under the own one's lock, as in a flush: a fork waits for it, and so finds no free half announced.
static void free_home(struct thread_cache *cache, struct run *slab, void *block) {
    if (!free_to_own_heap(cache, slab, block)) {
        lock_acquire(&cache->heap.lock);
        struct heap *overfull = heap_publish_block(slab, block);
        if (unlikely(overfull != NULL)) {
            cache->heap.overfull = overfull;
        }
        lock_release(&cache->heap.lock);
        heap_count(&cache->heap, COUNTER_remote_publishes, 1);
        heap_count(&cache->heap, COUNTER_remote_blocks, 1);
    }
}

static void push_slow(struct thread_cache *cache, uint64_t class_index, void *block) {
    struct magazine *magazine = &cache->magazines[class_index];
    void **top = top_of(cache, class_index);
    if (node_is_full(top)) {
        note_slow_path(cache, magazine);
        make_room(cache, class_index);
        top = top_of(cache, class_index);
        magazine->flush_mark = mark_of(block);
    }
    *top = block;
    set_top(cache, class_index, top + 1);
}

bool cache_push_slow(struct thread_cache *cache, uint64_t class_index, void *block) {
    if (cache->magazines[class_index].node == NULL || unlikely(cache_is_diverted(cache))) {
        return false;
    }
    push_slow(cache, class_index, block);
    return true;
}

void cache_free_slow(struct thread_cache *cache, struct run *slab, void *block) {
    const uint64_t class_index = slab->class_index;
    if (has_node(cache, class_index)) {
        push_slow(cache, class_index, block);
    } else {
        free_home(cache, slab, block);
    }
}

void cache_divert(struct thread_cache *cache, bool diverted) {
    if (cache_is_diverted(cache) == diverted) {
        return;
    }
    void ***from = diverted ? cache->top : cache->shadow_top;
    void ***to = diverted ? cache->shadow_top : cache->top;
    for (size_t kind = 0; kind < PAGE_KIND_COUNT; kind++) {
        slot_store(to, kind, slot_load(from, kind));
    }
    switch_tops_off(from);
    atomic_store_relaxed(&cache->diverted, diverted);
}

void cache_forget(struct thread_cache *cache) {
    for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        cache->magazines[i] = (struct magazine){0};
    }
    switch_tops_off(cache->top);
    switch_tops_off(cache->shadow_top);
    cache->empty_nodes = NULL;
    atomic_store_relaxed(&cache->empty_node_count, 0);
    cache->capacity_bytes = 0;
    cache->claim = (struct capacity_claim){0};
}
