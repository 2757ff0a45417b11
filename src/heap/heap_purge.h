// What a heap gives back of the pages inside its slabs, when and how much: those that nothing happened to for a while, and,
// at once, those beyond a bound (space/excess.h). For heap.c and whoever looks after heaps. All functions want the heap's lock.
#pragma once

#include "config/options.h"
#include "heap/heap_state.h"
#include "heap/slab.h"

// A slab's blocks and bytes count no more, before it changes or goes; or count as they are now.
static inline void heap_uncount(struct heap *heap, const struct run *slab) {
    const uint64_t used_blocks = slab->block_count - slab->free_count;
    heap->bins[slab->class_index].used_blocks -= used_blocks;
    heap->used_bytes -= used_blocks * size_classes[slab->class_index].block_bytes;
    heap->loose_bytes -= slab_loose_bytes(slab);
}

static inline void heap_count_in(struct heap *heap, const struct run *slab) {
    const uint64_t used_blocks = slab->block_count - slab->free_count;
    heap->bins[slab->class_index].used_blocks += used_blocks;
    heap->used_bytes += used_blocks * size_classes[slab->class_index].block_bytes;
    heap->loose_bytes += slab_loose_bytes(slab);
}

#define EXCESS_HEAPS 4

// Slabs with blocks that other threads freed: beyond so many bytes of them those see to it themselves, since the heap's own thread may never
// come, and until then nothing of them can be given back.
static inline uint64_t heap_waiting_bound(void) {
    return greatest_u64(EXCESS_HEAPS * option_live(excess_bytes), SUPERSLAB_BYTES);
}

// What a collect left, for want of budget, waits like what was not collected: who sends more sees to it.
static inline void heap_wait_with_rest(struct heap *heap) {
    atomic_add_relaxed(&heap->waiting_bytes, heap->loose_bytes);
}

// Tells the other heaps what this one has in use and keeps, when that has changed much.
void heap_tell_bytes(struct heap *heap);

// So much of the budget is gone.
static inline void heap_spend(struct heap *heap, size_t bytes) {
    heap->budget_bytes -= least_u64(heap->budget_bytes, bytes);
}

// So many of a slab's clean blocks, which were purged, are handed out.
void heap_note_wanted(struct heap *heap, struct run *slab, unsigned count);

// A slab goes whose blocks were purged in part, and a new one comes of a run that was used before: the former is taken for that run.
void heap_note_gone(struct heap *heap, const struct run *slab);
void heap_note_again(struct heap *heap, const struct run *slab);

// A slab has become sparse while the heap keeps too much.
void heap_purge_sparse(struct heap *heap, struct run *slab);

// Blocks came back: gives free ones back to the system when too many of them are still backed by memory, or some of these: the
// next calls go on.
void heap_purge_excess(struct heap *heap);

// Purges free pages inside slabs that took blocks back: those that nothing happened to since the last round, or, when
// `now`, all. Unless `now` the learner is asked what becomes of the heap's delay. Returns the bytes. With a budget of
// HEAP_BUDGET_SELDOM or less a round may take several calls. The heap's thread and visitors each begin their own.
size_t heap_purge_slabs(struct heap *heap, bool now);

// Whether there is none to go on with.
static inline bool heap_round_is_over(const struct heap *heap) {
    return heap->round.walk.link == NULL;
}

// Whether there is one that began with `now`.
static inline bool heap_round_goes_on(const struct heap *heap, bool early) {
    return !heap_round_is_over(heap) && heap->round.now && heap->round.early == early;
}

// A slab keeps free pages that the system did not take.
void heap_note_refused(struct heap *heap);

// Whether a visitor is to try again what the system refused of slabs; and that it does.
bool heap_may_purge_refused(const struct heap *heap, uint64_t now_ms);
void heap_put_off_refused(struct heap *heap, uint64_t now_ms);

// Whether the calls since the budget was set left something for the next one.
static inline bool heap_has_more(const struct heap *heap) {
    return heap->budget_bytes == 0 || heap->excess_walk.link != NULL;
}

// heap_purge_slabs() before slab_purge_delay_ms is over, after heap_purge_delay_ms(). Slabs that huge pages may back wait for the former: a
// part that goes would cost the rest its huge page. Returns whether slabs wait.
bool heap_purge_early(struct heap *heap, bool now);

// How long free pages inside the heap's slabs stay, at least: what is learned, slab_purge_delay_ms at most.
uint64_t heap_purge_delay_ms(const struct heap *heap);
