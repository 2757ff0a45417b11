// The thread cache: what malloc and free touch. Per size class a magazine of free blocks, of whatever heap:
// free takes a block into the calling thread's magazine without a look whose it is, and each goes home when
// it leaves the magazine the other way (heap_put). Why: docs/decisions/0015-free-without-an-owner.md.
//
//   node, 512 bytes, aligned to 512            top[c]
//  +------+------+------+------+------+------+--v---+------+ ... +------+
//  | link | NULL |  p   |  p   |  p   |  p   |      |      |     |      |
//  +------+------+------+------+------+------+------+------+ ... +------+
//   slot 0  floor                                                slot 63  ^ top & 511 == 0: full
//
// top[c] points behind the last block. The slot at `floor` holds NULL, so "empty" is the value just
// popped, and "full" is the alignment of top: neither needs another load. The floor is slot 0 for a
// class that may cache 63 blocks or more, higher for one that may cache fewer. Full nodes wait in
// the class's depot, linked through slot 0.
//
// A class without a node has top at the end of one constant node whose last slot is NULL: empty and
// full at once. So has every class of a thread without a cache, and every class of a cache whose
// operations are diverted (hardened and research mode): each call then takes the slow path by
// itself, and "not diverted" costs nothing. The tops are indexed by the kind of page, as the page map has
// it: the kinds that are no slab's have a top at that node for ever, so that free need not tell them.
#pragma once

#include "base/atomic.h"
#include "heap/guarded.h"
#include "heap/heap.h"
#include "heap/slab.h"
#include "space/metadata.h"
#include "space/page_map.h"
#include "space/size_class.h"
#include "thread/capacity.h"
#include "thread/knobs.h"

// Nodes that a cache keeps for depots that grow again. It takes and gives them in whole batches: metadata's lock is one for all
// threads (docs/decisions/0068-what-threads-share.md).
#define EMPTY_NODES_MOST (2 * METADATA_ALIGNED_BATCH)

// Bits of `active`: the class took the slow path, or a node of its depot, since the last decay; a decay took blocks since the learner
// looked; the first since the learner looked.
#define MAGAZINE_ACTIVE 1
#define MAGAZINE_DECAYED 2
#define MAGAZINE_TOUCHED 4

// Invariants (cache_check): floor + capacity of the node == 63; top is between floor + 1 and the
// end; the depot has depot_count nodes of 63 blocks each, and is empty while floor > 0.
struct magazine {
    void **node;        // the one top points into, or NULL
    void **depot;       // stack of full nodes
    uint32_t capacity;  // blocks the class may cache, depot included
    uint32_t limit;  // knob: what the capacity may grow to; 0, CAPACITY_CUT: see capacity_limit()
    // Relaxed: the owning thread writes, statistics of other threads read a guess. Pairs with
    // nothing.
    _Atomic(uint16_t) depot_count;
    _Atomic(uint8_t) floor;
    uint16_t depot_low;   // lowest depot_count since the last decay
    uint16_t watched;     // operations of the class while it had no node, up to watched_operations
    uint8_t refilled;     // 1: refilled since it last overflowed: the capacity was too small
    uint8_t active;       // MAGAZINE_ bits
    uint8_t flush_count;  // blocks that the last flush of a full node gave back; 0: none
    uint8_t brought;      // blocks since the magazine began empty; REFILLS_ARE_WHOLE
    uint32_t flush_mark;  // mark_of() the block that was freed then
    struct class_signals signals;
};

enum cache_state {
    CACHE_UNUSED,  // waits for a thread; empty
    CACHE_IN_USE,  // belongs to a thread, which may be gone and have told nobody
    CACHE_ORPHAN,  // its thread was left behind by fork: what it holds is not to be trusted
    CACHE_KEPT,  // waits for a thread with the blocks of the last one: the registry's lock covers them meanwhile
};

// A round through the slabs of a thread's own heap (thread/maintenance.c).
enum own_round { OWN_ROUND_NONE, OWN_ROUND_EARLY, OWN_ROUND_FULL };

struct thread_cache {
    // What the fast paths read, in the order they read it. The tops are written by the owning
    // thread alone; statistics of other threads read them relaxed, tolerating a stale value.
    void **top[PAGE_KIND_COUNT];
    uintptr_t address_max;        // highest address the page map may be asked for; 0: NULL only
    page_entry_atomic *page_map;  // flat map
    uintptr_t
        delete_address_max;  // address_max once operator delete is trusted, before 0: api/delete.c

    // Slow path, the owning thread's.
    _Alignas(CACHE_LINE_BYTES) uint64_t pace_ticks;    // os_ticks() of the last look at the clock
    uint64_t clock_ms;                                 // what that look said
    uint64_t decay_ms, slab_purge_ms, early_purge_ms;  // os_clock_ms() of the last of each
    uint64_t capacity_bytes;                           // sum of capacity_cost()
    struct capacity_claim claim;                       // what it may be besides
    void **empty_nodes;        // stack of up to EMPTY_NODES_MOST nodes, linked by their first slot
    struct learner *learner;   // control/learner.c's, or NULL
    uint32_t learner_events;   // refills and flushes since it looked last
    uint32_t learner_window;   // how many of them make it look again: see knobs.h
    uint32_t peak_pages_seen;  // arena_peak_pages at the last tick
    // Relaxed: the owning thread writes, statistics of other threads read a guess. Pairs with nothing.
    _Atomic(uint32_t) empty_node_count;
    uint32_t
        slabs_wanted;  // times since the last decay that a block of a class was a slab's first (heap_wants_slab)
    bool lacks_room;             // since the last decay a class found none that others could make
    struct thread_cache *donor;  // whose heap was last looked at for a slab (migration.c)
    // One asleep, with empty slabs, that migration met in this slow path: maintenance_tick() takes some.
    struct thread_cache *to_relieve;
    // 1: `top` is switched off, `shadow_top` used. Relaxed: the owning thread writes, statistics of other threads
    // read a guess. Pairs with nothing.
    _Atomic(uint8_t) diverted;
    uint8_t researched;       // 1: operations are counted and timed (research.h)
    uint8_t checked;          // 1: no magazines: every call goes to the heap (hardened)
    uint8_t deletes_trusted;  // 1: operator delete may be free (api/delete.c)
    uint8_t own_round;        // enum own_round: what the next tick goes on with
    uint8_t learner_is_due;   // 1: it looks at the end of this slow path
    bool entered;             // the thread is changing it: see cache_enter()
    uint8_t exit_rounds;      // rounds of destructors that count as gone
    uint32_t thread_id;       // the kernel's number of the thread that has it, or had it last
    uint32_t process_id;      // that of its process, by which it asked for it
    uint64_t thread_pointer;  // the same thread's os_thread_pointer()
    struct guarded_sampler sampler;
    // As `top`, while diverted. With it before what is large, as the loader writes both into the constant caches.
    void **shadow_top[PAGE_KIND_COUNT];
    struct magazine magazines[SIZE_CLASS_COUNT];
    // NULL until the first research. Release when made by the owner; the acquire is readers' outside of the process.
    _Atomic(struct research *) research;

    // Shared.
    // Relaxed: the owner counts its slow paths here, harvesters and who asks for slabs look whether it moves. Pairs
    // with nothing.
    _Atomic(uint32_t) activity;
    // Under the heap's lock: what a harvester saw of it, and when that was new.
    uint32_t activity_seen;
    uint64_t activity_ms;
    // Under the heap's lock: what who asked for a slab saw of it, and the pages asked for since it was new (migration.c).
    uint32_t activity_asked;
    uint32_t pages_asked;
    // Changed under the registry's lock. Release when a thread takes the cache or leaves blocks in it, acquire by
    // statistics, which then look at the magazines.
    _Atomic(uint32_t) state;
    // The thread's own.
    uint8_t early_reports;  // times the books were written for its first slow paths
    // Under the registry's lock, but `passed_ticks`, `came_soon` and `kept_ms`, which are the thread's own while there is one.
    bool came_soon;                    // the thread took it soon after the one before had ended
    struct thread_cache *next_unused;  // of those that are unused, of those that are kept
    uint64_t passed_ticks;             // os_ticks() when a thread took it, or left it
    uint64_t kept_ms;                  // os_clock_ms() when a thread left blocks in it
    // Constant once the cache is published (release store of the registry's list head, acquire
    // loads by its readers).
    struct thread_cache *next_all;
    struct heap heap;
};

// The one word of thread-local state. Starts at a constant cache that owns nothing, so that the
// fast paths need no test for "first call of this thread".
extern __thread struct thread_cache *thread_cache __attribute__((tls_model("initial-exec")));

// Caches of threads that have none: not yet, and no longer. The second is made the same as the first before a thread
// points at it (lifecycle_detach), and never changes then: the loader has no pointers to fill in.
HIDDEN extern const struct thread_cache cache_of_new_thread;
HIDDEN extern struct thread_cache cache_of_ended_thread;

HIDDEN extern void *const cache_no_node[NODE_SLOTS];  // for control/inspect.c

static inline bool cache_is_diverted(const struct thread_cache *cache) {
    return atomic_load_relaxed(&((struct thread_cache *)(uintptr_t)cache)->diverted) != 0;
}

static inline bool cache_is_real(const struct thread_cache *cache) {
    return cache->heap.id != 0;
}

// From here to cache_leave() the calling thread changes its cache, and takes locks: exit(), called by a handler of a signal that came
// between, leaves both alone (api/start.c). Nested, as in such a handler: what was before is handed back.
static inline bool cache_enter_real(struct thread_cache *cache) {
    const bool was_entered = cache->entered;
    cache->entered = true;
    atomic_signal_fence(memory_order_seq_cst);
    return was_entered;
}

static inline void cache_leave_real(struct thread_cache *cache, bool was_entered) {
    atomic_signal_fence(memory_order_seq_cst);
    cache->entered = was_entered;
}

// The same of what may be a constant cache, which nobody changes.
static inline bool cache_enter(struct thread_cache *cache) {
    return likely(cache_is_real(cache)) && cache_enter_real(cache);
}

static inline void cache_leave(struct thread_cache *cache, bool was_entered) {
    if (likely(cache_is_real(cache))) {
        cache_leave_real(cache, was_entered);
    }
}

static inline bool cache_may_hold_blocks(enum cache_state state) {
    return state == CACHE_IN_USE || state == CACHE_KEPT;
}

// ---- The fast paths ----

// Of tops by kind, those of the size classes.
static inline void ***cache_class_tops(void ***tops_of_kinds) {
    return tops_of_kinds + PAGE_KIND_SLAB;
}

// Whether the node that a top points into has no room, as of a class that has none.
FAST_PATH bool node_is_full(void *const *top) {
    return ((uintptr_t)top & (NODE_BYTES - 1)) == 0;
}

// A block of the class with this number (size_class_number()), or NULL when the magazine is empty.
FAST_PATH void *cache_pop(struct thread_cache *cache, uint64_t class_number) {
    void **top = slot_load(cache->top, class_number);
    void *block = top[-1];
    if (likely(block != NULL)) {
        slot_store(cache->top, class_number, top - 1);
    }
    return block;
}

// The same if the block is at a multiple of `alignment`, a power of two or 0, which nothing is a multiple of.
FAST_PATH void *cache_pop_aligned(struct thread_cache *cache, uint64_t class_number,
                                  size_t alignment) {
    void **top = slot_load(cache->top, class_number);
    void *block = top[-1];
    if (unlikely(block == NULL || ((uintptr_t)block & (alignment - 1)) != 0)) {
        return NULL;
    }
    slot_store(cache->top, class_number, top - 1);
    return block;
}

// False when the node has no room, as of what is no slab's.
FAST_PATH bool cache_push_kind(struct thread_cache *cache, uint64_t kind, void *block) {
    void **top = slot_load(cache->top, kind);
    if (unlikely(node_is_full(top))) {
        return false;
    }
    *top = block;
    slot_advance(cache->top, kind);
    return true;
}

// False when the node is full, and when the address is in no slab.
FAST_PATH bool cache_push(struct thread_cache *cache, uintptr_t address_max, void *block) {
    if (unlikely((uintptr_t)block > address_max)) {
        return false;
    }
    const uint64_t entry = atomic_load_relaxed(&cache->page_map[(uintptr_t)block >> PAGE_SHIFT]);
    return cache_push_kind(cache, page_entry_kind(entry), block);
}

// The size class of an address in a slab, as far as the cache can tell; else SIZE_CLASS_COUNT or more.
static inline uint64_t cache_class_of(const struct thread_cache *cache, uintptr_t address) {
    return address > cache->address_max
               ? SIZE_CLASS_COUNT
               : page_entry_class(atomic_load_relaxed(&cache->page_map[address >> PAGE_SHIFT]));
}

// Looking through the whole magazine would cost realloc-heavy programs dearly; most uses of a freed
// block follow soon after the free.
#define FREED_LATELY 8

// Whether the block is among the last few that this thread freed into the magazine with this top.
FAST_PATH bool cache_freed_lately(void *const *top, uintptr_t address) {
    const void *block = (const void *)address;
    // The node begins within those few: the slot at its floor is NULL.
    if (unlikely((uintptr_t)(top - 1) % NODE_BYTES / sizeof(void *) < FREED_LATELY - 1)) {
        while (*--top != NULL && *top != block) {
        }
        return *top != NULL;
    }
    // Without a look for the floor: below it there is no block.
    return top[-1] == block || top[-2] == block || top[-3] == block || top[-4] == block ||
           top[-5] == block || top[-6] == block || top[-7] == block || top[-8] == block;
}

// ---- The slow paths, on the calling thread's own cache ----

void cache_init(struct thread_cache *cache, uint32_t id);

// Brings a slab with free blocks of a class into the heap of a cache that has none, from one that does not
// need it; its lock is held. NULL, or set before the first cache is made (lifecycle.c).
HIDDEN extern void (*cache_slab_bringer)(struct thread_cache *cache, uint64_t class_index);

// The step between hit and slow path, without a lock or the heap: a block from the depot when the
// node is empty; NULL when there is none, or operations are diverted.
void *cache_pop_depot(struct thread_cache *cache, uint64_t class_index);

// Parks the full node and puts the block into an empty one. False when the depot has no room for it, there is none for another
// node, its blocks go home instead, operations are diverted, or it is time for a tick.
bool cache_push_depot(struct thread_cache *cache, uint64_t class_index, void *block);

// Makes room for the block in the full magazine. False when the class has none, or operations are diverted.
bool cache_push_slow(struct thread_cache *cache, uint64_t class_index, void *block);

// The next block of a class whose magazine is empty, or was not seen by the fast path. NULL when the system has no memory.
void *cache_alloc_slow(struct thread_cache *cache, uint64_t class_index);

// Whether the node has blocks, in a slow path: the fast one did not see them, because operations are diverted or the
// thread got the cache just now.
bool cache_has_unseen(const struct thread_cache *cache, uint64_t class_index);

// Blocks that the next refill of a class asks its heap for; 1 while it has no magazine.
uint64_t cache_refill_blocks(const struct thread_cache *cache, uint64_t class_index);

// Frees a block of a slab, of whatever heap, when the magazine is full, diverted or not there yet. Where the
// class has no magazine, the block goes home at once: a pointer that is none is then reported.
void cache_free_slow(struct thread_cache *cache, struct run *slab, void *block);

// Turns the knob of the class to `limit`, at least one block, with CAPACITY_CUT or not; if it caches more, it gives back what is
// beyond.
void cache_set_limit(struct thread_cache *cache, uint64_t class_index, uint32_t limit);

// Turns all knobs of the cache back. If any was turned, the cache starts anew.
void cache_reset_knobs(struct thread_cache *cache);

// Fits the cache to the number of threads there are, and to who may earn: at the thread's start, and at each decay.
void cache_adjust(struct thread_cache *cache);

// Gives back what the cache did not need since the last time.
void cache_decay(struct thread_cache *cache);

// Gives all blocks of the magazines back to their heaps. Also of a cache without a thread, by who took it for that.
void cache_empty(struct thread_cache *cache);

// Sends every call the slow way, or no longer.
void cache_divert(struct thread_cache *cache, bool diverted);

// Forgets all blocks: see fork.c.
void cache_forget(struct thread_cache *cache);

// Blocks of a class in the magazine. For another thread's cache: a guess that is never torn.
uint64_t cache_block_count(const struct thread_cache *cache, uint64_t class_index);

// Bytes of the cache itself and its nodes. For another thread's cache: as cache_block_count().
uint64_t cache_structure_bytes(const struct thread_cache *cache);

// Number of violated invariants; of the own cache, and under the registry's lock of a kept one.
size_t cache_check(const struct thread_cache *cache);

// ---- What cache.c, one operation at a time, cache_upkeep.c, whole caches, and who looks at magazines share ----

// The top of a class that has no node.
#define NO_TOP ((void **)(uintptr_t)(cache_no_node + NODE_SLOTS))

static inline void ***tops_of(struct thread_cache *cache) {
    return cache_class_tops(cache_is_diverted(cache) ? cache->shadow_top : cache->top);
}

static inline void **top_of(struct thread_cache *cache, uint64_t class_index) {
    return slot_load(tops_of(cache), class_index);
}

static inline void set_top(struct thread_cache *cache, uint64_t class_index, void **top) {
    slot_store(tops_of(cache), class_index, top);
}

static inline unsigned floor_of(const struct magazine *magazine) {
    return atomic_load_relaxed(&((struct magazine *)(uintptr_t)magazine)->floor);
}

// Where the oldest block of its node is, if there is one.
static inline void **first_of(const struct magazine *magazine) {
    return magazine->node + floor_of(magazine) + 1;
}

// Of the `held` blocks in the node the `count` oldest are gone.
static inline void drop_oldest(struct thread_cache *cache, uint64_t class_index, unsigned held,
                               unsigned count) {
    void **first = first_of(&cache->magazines[class_index]);
    __builtin_memmove(first, first + count, (held - count) * sizeof *first);
    set_top(cache, class_index, first + (held - count));
}

// Nodes in the depot.
static inline unsigned parked(const struct magazine *magazine) {
    return atomic_load_relaxed(&((struct magazine *)(uintptr_t)magazine)->depot_count);
}

// Nodes in no use.
static inline unsigned empty_node_count(const struct thread_cache *cache) {
    return atomic_load_relaxed(&((struct thread_cache *)(uintptr_t)cache)->empty_node_count);
}

// Floor of a node that holds `capacity` blocks, or as many as fit.
static inline uint8_t floor_for(uint32_t capacity) {
    return (uint8_t)(capacity >= NODE_BLOCKS_MAX ? 0 : NODE_BLOCKS_MAX - capacity);
}

// Makes it the node that top points into. Its `count` blocks lie above the floor.
static inline void install_node(struct thread_cache *cache, uint64_t class_index, void **node,
                                unsigned count) {
    struct magazine *magazine = &cache->magazines[class_index];
    magazine->node = node;
    node[floor_of(magazine)] = NULL;
    set_top(cache, class_index, first_of(magazine) + count);
}

// A node in no use: kept for the next that a class of this cache needs, or given back.
void cache_give_node(struct thread_cache *cache, void **node);

// Brings home what others freed of the heap's blocks; of what becomes empty a part goes to the arena, and the next slow paths go
// on. The heap's lock is held.
void cache_collect(struct thread_cache *cache);

// Blocks to their heaps.
void cache_give_to_heap(struct thread_cache *cache, void *const *blocks, unsigned count);

// The most recently parked node, to the heaps of its blocks.
void cache_flush_depot_node(struct thread_cache *cache, uint64_t class_index);
