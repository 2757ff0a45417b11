// A heap: the slabs one thread allocates from, by size class, and the way back for blocks that
// other threads free.
//
// Everything here is done under the heap's lock: by its thread when its cache runs dry or over, and
// by any other thread that finds the heap idle (see thread/maintenance.c). The lock is uncontended
// in the first case: one atomic per up to 63 operations of the program, 8 and more where free blocks lie together.
//
// Remote frees. A thread that frees a block of a foreign heap sets the block's bit in the slab's
// remote_bits, then the word's bit in remote_summary; the one that turns the summary from zero
// pushes the slab on the heap's `remote_slabs`. The owner takes the whole list with one exchange,
// then each summary, then each word. Where a block was freed twice a push may come late, when the
// slab is gone or belongs to another heap: the collector then hands it on, or drops it
// (heap_collect). Why the steps have this order: docs/MEMORY_ORDER.md; the model of the protocol:
// tests/protocols/remote_free.pml.
#pragma once

#include "heap/heap_state.h"

void heap_init(struct heap *heap, uint32_t id);

// All functions below want the lock, except heap_publish, heap_publish_block and heap_has_remote.

// Takes 1..`want` (at most 63) blocks of a class into blocks[], few of which are far apart, so that it does not take long: of a
// slab those of WORDS_FEW words with the lowest addresses, the highest first, so that who uses the last one first goes upward; and
// of a further slab only where these are very few. When none has one, makes a slab. Returns how many; 0 when the system has
// no memory.
unsigned heap_take(struct heap *heap, uint64_t class_index, unsigned want, void **blocks);

// Whether the heap has blocks of the class without making a slab.
bool heap_has_blocks(const struct heap *heap, uint64_t class_index);

// Whether the next block of the class is the first one of a slab: of a new one, or of a spare one, which would be new if it had not
// stayed.
static inline bool heap_wants_slab(const struct heap *heap, uint64_t class_index) {
    const struct bin *bin = &heap->bins[class_index];
    return list_is_empty(&bin->partial) ||
           (unlikely(heap->spares.most != 0) && !bin_has_begun_slab(bin));
}

// Makes a slab of the class, which has none with blocks, of a spare one of another class. False when there is none.
bool heap_use_spare(struct heap *heap, uint64_t class_index);

// A decay interval is over: gives up spare slabs that it did without.
void heap_decay_spares(struct heap *heap);

// Moves a slab of the class that holds a fair part of its blocks from one heap to another; both locks are
// held. False when there is none.
bool heap_move_slab(struct heap *from, struct heap *to, uint64_t class_index);

// Puts blocks back that the heap's own thread freed; those of other heaps go home, as by heap_publish().
// Each is checked: a pointer that is no block, or one the slab holds already, is reported as misuse and
// left alone.
void heap_put(struct heap *heap, void *const *blocks, unsigned count);

// The same for the first blocks alone, WORDS_FEW stretches of such as follow one another in one word: it does not take long.
// Returns how many it put back, at least one.
unsigned heap_put_few(struct heap *heap, void *const *blocks, unsigned count);

// The same for one block of a slab of this heap that was checked: no bitmap says that it is free.
void heap_put_checked(struct heap *heap, struct run *slab, unsigned index);

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

// Destroys empty slabs beyond `keep` per class, spare ones too.
void heap_release_empty(struct heap *heap, unsigned keep);
