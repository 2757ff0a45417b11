// What a heap is made of; what is done with it: heap.h and heap_purge.h.
#pragma once

#include "base/atomic.h"
#include "base/list.h"
#include "config/counters.h"
#include "config/options.h"
#include "os/lock.h"
#include "space/arena.h"
#include "space/excess.h"
#include "space/purge_delay.h"
#include "space/size_class.h"

// Slabs of one class. Invariants: a slab is on `partial` exactly when it holds a block, else on the heap's
// `full`; empty_count of the partial ones hold all their blocks.
struct bin {
    struct list partial;
    uint32_t slab_count;
    uint32_t empty_count;
    uint64_t used_blocks;  // that its slabs handed out
};

// Empty slabs that a heap keeps for the next burst, over all classes: the latest.
#define RETAINED_CLASSES 4

// Empty slabs of one page that a heap keeps beside these, for whatever class needs one next. None at first: one more each time that it
// makes a slab of what was another heap's, after it had given one back itself in the same decay interval. What such an interval
// did without, it gives up. So what a thread frees in bulk and takes anew stays with it, instead of going from thread to thread by
// way of the arena (docs/decisions/0075-blocks-that-come-and-go-in-bulk.md).
#define SPARE_PAGES 1
struct spares {
    uint32_t count;     // empty slabs of so many pages, whatever they are kept for
    uint32_t low;       // lowest count since the last decay
    uint32_t most;      // so many stay beside what each class keeps
    uint32_t released;  // that went since the last decay, less those made since
};

// A look through the partial slabs of all classes, those of larger blocks first, in as many calls as it takes: there may be a
// million of them. A slab that leaves its list on the way is none of it any more (bin_unlink).
struct slab_walk {
    // The next slab's, or the list itself at its end; NULL: no walk is under way.
    const struct list *link;
    uint32_t left;  // of the class at most: slabs come to the end of its list meanwhile
    uint8_t class_index;
};

// A walk by age, see heap_purge_slabs().
struct slab_round {
    struct slab_walk walk;
    uint32_t looked_through_count;  // slabs so far
    bool now, early;                // which kind it is
    bool left_some;                 // that huge pages may back
    bool left_refused;              // that the system does not take
};

struct heap {
    struct lock lock;
    uint32_t id;  // 1 .. HEAP_ID_MAX, never changes
    uint64_t random_state;
    // Blocks held back before reuse (hardened mode): a ring of options.quarantine_blocks, or NULL.
    // Relaxed: written under the lock, read outside of the process; pairs with nothing.
    _Atomic(void *) *quarantine;
    uint32_t quarantine_next;
    // The classes with an empty slab that emptied last, each once; a ring. SIZE_CLASS_COUNT: none.
    uint8_t retained[RETAINED_CLASSES];
    uint8_t retained_next;
    // Not 0: slabs may keep free pages that the system did not take. Visitors try again from `refused_due` on, by the clock in 1024 ms,
    // and put it off twice as long each time: 1 << refused_wait.
    uint8_t refused_wait;
    uint32_t refused_due;
    struct spares spares;
    struct slab_round round;
    struct slab_walk excess_walk;  // for sparse slabs, until little enough is loose
    uint64_t
        excess_seen_bytes;  // loose_bytes after the last part of it that the heap's own thread did
    bool excess_again;      // slabs behind it became sparse with no budget for them
    // Slabs, in the last round by age. Relaxed: written under the lock, read by pacing; pairs with nothing.
    _Atomic(uint32_t) looked_through_count;
    // Bytes of blocks that slabs handed out, and of those they hold that may be backed by memory.
    uint64_t used_bytes, loose_bytes;
    uint64_t told_used_bytes, told_loose_bytes;  // what heap_sums counts of these
    struct excess excess;
    struct purge_delay purge_delay;
    // In slabs that went to the arena with it: what was purged inside of them for being too much, and not handed out since. The arena does
    // not know, and gives such runs out as it does any.
    uint32_t gone_kib;
    bool keeps_too_much;  // loose_bytes came above their bound, and not down to excess_rest() since
    bool
        put_since_purge;  // blocks came back since a round began that purges whatever has aged or not
    bool put_since_early;  // or an early one
    bool wants_visit;      // who collected for the idle heap left empty slabs to its next visitor
    // What may go to the arena and to the system before the lock is released: without end for the heap's own thread but in
    // its rounds, where it collects, and where slabs keep too much, little for others, which it may wait for. With none left, empty slabs and loose bytes stay for the next.
    size_t budget_bytes;
    // Relaxed: each is bumped by the lock's holder, or by the heap's own thread alone; statistics read them at any time. Pairs
    // with nothing.
    struct counters counters;
    struct bin bins[SIZE_CLASS_COUNT];
    struct list full;  // slabs of all classes
    // Slabs with remote frees to collect, linked through remote_next. Release push by a remote
    // freer, acquire exchange by the collector.
    _Alignas(CACHE_LINE_BYTES) _Atomic(struct run *) remote_slabs;
    // Of the slabs on that list, about. Relaxed: who pushes adds, who collects begins anew; what gets lost in between tells of
    // too little once. Pairs with nothing.
    _Atomic(uint64_t) waiting_bytes;
    // Where this heap's thread sent blocks of late, and too much waits to be collected; or the heap itself, where a collect left
    // empty slabs. The thread's own.
    struct heap *overfull;
};

// Sums over all heaps, as they told last: not what has changed by less than a part of excess_bytes since.
struct heap_sums {
    // Of each heap's loose bytes at most excess_bytes.
    // Relaxed: each heap adds its own under its lock, others read what is left; pairs with nothing.
    _Atomic(uint64_t) used_bytes, loose_bytes;
};
HIDDEN extern struct heap_sums heap_sums;

static inline void heap_count(struct heap *heap, enum counter counter, uint64_t amount) {
    atomic_bump_owned(&heap->counters.value[counter], amount);
}

#define HEAP_BUDGET_ALL SIZE_MAX
// What one call gives back at most, some 0.1 ms; the next one goes on. Where calls are far apart (maintenance.c) up to
// HEAP_BUDGET_SELDOM, a millisecond's worth.
#define HEAP_BUDGET_CALL MIB
#define HEAP_BUDGET_SELDOM (8 * MIB)
