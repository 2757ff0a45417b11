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

#include "heap/bins.h"
#include "heap/heap_state.h"

void heap_init(struct heap *heap, uint32_t id);

// All functions below want the lock, except heap_publish, heap_publish_block and heap_has_remote.

// Takes 1..`want` (at most 63) blocks of a class into blocks[], few of which are far apart, so that it does not take long: of a
// slab those of WORDS_FEW words with the lowest addresses, the highest first, so that who uses the last one first goes upward; and
// of a further slab only where these are very few. When none has one, makes a slab. Returns how many; 0 when the system has
// no memory.
unsigned heap_take(struct heap *heap, uint64_t class_index, unsigned want, void **blocks);

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
// these blocks. Reports those that are free already. Returns the heap if too much waits there to be collected, else NULL.
struct heap *heap_publish(struct run *slab, unsigned word, uint64_t bits);

// The same for one block. Reports a pointer that is none.
struct heap *heap_publish_block(struct run *slab, void *block);

// The heap's thread ends after `cpu_ns` of processor time, its cache is empty. Whoever would look after the heap may come late or
// never: what is free in it, and then in the arena, goes back now, if bringing each again would take little of that time.
void heap_purge_at_end(struct heap *heap, uint64_t cpu_ns);
