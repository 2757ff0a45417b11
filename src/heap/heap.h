// A heap: the slabs one thread allocates from, by size class, and the way back for blocks that
// other threads free.
//
// Everything here is done under the heap's lock: by its thread when its cache runs dry or over, and
// by any other thread that finds the heap idle (see thread/maintenance.c). The lock is uncontended
// in the first case: one atomic per 8 to 63 operations of the program.
//
// Remote frees. A thread that frees a block of a foreign heap sets the block's bit in the slab's
// remote_bits, then the word's bit in remote_summary; the one that turns the summary from zero
// pushes the slab on the heap's `remote_slabs`. The owner takes the whole list with one exchange,
// then each summary, then each word. Where a block was freed twice a push may come late, when the
// slab is gone or belongs to another heap: the collector then hands it on, or drops it
// (heap_collect). Why the steps have this order: docs/MEMORY_ORDER.md; the model of the protocol:
// tests/protocols/remote_free.pml.
#pragma once

#include "base/atomic.h"
#include "base/list.h"
#include "config/counters.h"
#include "config/options.h"
#include "os/lock.h"
#include "space/arena.h"
#include "space/size_class.h"

// Slabs of one class. Invariants: a slab is on `partial` exactly when it holds a block, else on the heap's
// `full`; empty_count of the partial ones hold all their blocks.
struct bin {
    struct list partial;
    uint32_t slab_count;
    uint32_t empty_count;
};

// Empty slabs that a heap keeps for the next burst, over all classes: the latest.
#define RETAINED_CLASSES 4

struct heap {
    struct lock lock;
    uint32_t id;  // 1 .. HEAP_ID_MAX, never changes
    uint64_t random_state;
    // Blocks held back before reuse (hardened mode): a ring of options.quarantine_blocks, or NULL.
    // Relaxed: written under the lock, read without it for the words of a message; pairs with nothing.
    _Atomic(void *) *quarantine;
    uint32_t quarantine_next;
    // The classes with an empty slab that emptied last, each once; a ring. SIZE_CLASS_COUNT: none.
    uint8_t retained[RETAINED_CLASSES];
    uint8_t retained_next;
    // Bytes of blocks that slabs handed out, and of those they hold that may be backed by memory.
    uint64_t used_bytes, loose_bytes;
    uint64_t told_used_bytes, told_loose_bytes;  // what heap_sums counts of these
    struct excess excess;
    bool keeps_too_much;  // loose_bytes came above their bound, and not down to excess_rest() since
    bool put_since_purge;  // blocks came back since an idle heap's slabs were last purged
    bool wants_visit;      // who collected for the idle heap left empty slabs to its next visitor
    // What may go to the arena and to the system before the lock is released: without end for the heap's own thread,
    // little for others, which it may wait for. With none left, empty slabs and loose bytes stay for the next.
    size_t budget_bytes;
    // Relaxed counters under the lock; statistics read them at any time. Pairs with nothing.
    struct counters counters;
    struct bin bins[SIZE_CLASS_COUNT];
    struct list full;  // slabs of all classes
    // Slabs with remote frees to collect, linked through remote_next. Release push by a remote
    // freer, acquire exchange by the collector.
    _Alignas(CACHE_LINE_BYTES) _Atomic(struct run *) remote_slabs;
};

// Sums over all heaps, as they told last: not what has changed by less than a part of excess_bytes since.
struct heap_sums {
    // Of each heap's loose bytes at most excess_bytes.
    // Relaxed: each heap adds its own under its lock, others read what is left; pairs with nothing.
    _Atomic(uint64_t) used_bytes, loose_bytes;
};
extern struct heap_sums heap_sums;

void heap_init(struct heap *heap, uint32_t id);

static inline void heap_count(struct heap *heap, enum counter counter, uint64_t amount) {
    atomic_bump_owned(&heap->counters.value[counter], amount);
}

// All functions below want the lock, except heap_publish, heap_publish_block and heap_has_remote.

// Takes 1..`want` (at most 63) blocks of a class into blocks[], of each slab the lowest addresses first; when none
// has one, makes slabs for half of them or more. Returns how many; 0 when the system has no memory.
unsigned heap_take(struct heap *heap, uint64_t class_index, unsigned want, void **blocks);

// Whether the heap has blocks of the class without making a slab.
bool heap_has_blocks(const struct heap *heap, uint64_t class_index);

// Moves a slab of the class that holds a fair part of its blocks from one heap to another; both locks are
// held. False when there is none.
bool heap_move_slab(struct heap *from, struct heap *to, uint64_t class_index);

// Puts blocks back that the heap's own thread freed; those of other heaps go home, as by heap_publish().
// Each is checked: a pointer that is no block, or one the slab holds already, is reported as misuse and
// left alone.
void heap_put(struct heap *heap, void *const *blocks, unsigned count);

// The same for one block of a slab of this heap that was checked: no bitmap says that it is free.
void heap_put_checked(struct heap *heap, struct run *slab, unsigned index);

#define HEAP_BUDGET_ALL SIZE_MAX

// Takes back what other threads freed. Returns the number of blocks.
unsigned heap_collect(struct heap *heap);

static inline bool heap_has_remote(const struct heap *heap) {
    return atomic_load_relaxed(&((struct heap *)heap)->remote_slabs) != NULL;
}

// Any thread: hands the blocks `bits` of word `word` of a foreign slab to its heap. The caller owns
// these blocks. Reports those that are free already.
void heap_publish(struct run *slab, unsigned word, uint64_t bits);

// The same for one block. Reports a pointer that is none.
void heap_publish_block(struct run *slab, void *block);

// Destroys empty slabs beyond `keep` per class.
void heap_release_empty(struct heap *heap, unsigned keep);
