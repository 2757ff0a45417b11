// What describes a superslab and the runs in it (see space/arena_pages.h).
#pragma once

#include "base/atomic.h"
#include "base/base.h"
#include "base/list.h"
#include "space/page_map.h"

#define SUPERSLAB_PAGES 64

struct heap;

// Free pages inside a slab: none to purge; some, in use lately; some, left alone for a while; some that the system did not
// take, left alone since.
enum slab_purge_age { SLAB_PURGE_NONE, SLAB_PURGE_USED, SLAB_PURGE_AGED, SLAB_PURGE_REFUSED };

// Why what is taken of a slab's clean blocks is worth noting: they were purged for being too many, or earlier than the
// option says.
enum slab_purged { SLAB_PURGED_LONG_AGO, SLAB_PURGED_EXCESS, SLAB_PURGED_EARLY };

enum run_kind { RUN_FREE, RUN_SLAB, RUN_LARGE };

// Descriptor of a run: two cache lines, one for its owner, one for other threads. It is made when the first run
// starts at its place in the superslab, and lives as long as the process (a superslab that is unmapped gives its
// descriptors to the next one). Once a slab's it stays at its place: the remote fields are never reset, and a thread
// may still be about to touch them after the run is gone. One that only large blocks had goes, when none has it, to
// the next run of the superslab that starts where none ever did.
struct run {
    // Written by arena_take() and the owner; stable while a block of the run is in use;
    // `start` by whole_store_release(): a second free of a block reads it (acquire).
    uintptr_t start;
    uint8_t page_count;  // without the guard page
    uint8_t guarded;     // 1: one more page behind, without access
    // Read by anyone who checks a doubtful pointer. Release where a large block begins, acquire where one is freed: who
    // sees it begin sees its start. Else relaxed.
    _Atomic(uint8_t) kind;
    uint8_t class_index;
    // RUN_LARGE: usable bytes, else 0. Relaxed: its holder writes, statistics read at any time; pairs
    // with nothing.
    _Atomic(uint32_t) large_bytes;

    // RUN_SLAB, written under the heap's lock (see heap/slab.h).
    struct list bin_link;
    uint16_t block_count;
    uint16_t free_count;   // blocks the slab holds
    uint16_t fresh_index;  // blocks from here on were never handed out
    uint8_t purge_age;     // enum slab_purge_age
    uint8_t tail_dirty;    // 1: the pages behind fresh_index may hold memory of a former run
    uint64_t summary;      // bit w: word w of free_bits is not zero
    // Relaxed: the words have one writer at a time, the holder of the heap's lock; other threads
    // read them to recognise a double free (see heap_put). Pairs with nothing.
    _Atomic(uint64_t) *free_bits;
    // Free blocks taken to be without memory: never used, or purged since. The next to be handed out.
    uint16_t clean_count;
    uint8_t purged;  // enum slab_purged: why the clean blocks were
    uint32_t
        heap_id;  // of the heap that it belongs to, or a slab here did before; 0: none that is known

    // Line of the remote freers.
    // Release or on publishing a word, acquire exchange by the owner on collecting.
    _Alignas(CACHE_LINE_BYTES) _Atomic(uint64_t) remote_summary;
    // Relaxed: written by the one thread that pushes, before its release push on the heap's list.
    _Atomic(struct run *) remote_next;
    // Acquire and release or by remote freers, acquire exchange by the owner; release store of 0 when the
    // slab is made.
    _Atomic(uint64_t) *remote_bits;
    // Relaxed: set before a block is handed out; NULL when the run is no slab. Read by a remote
    // freer that holds a block, and by a collector after the acquire exchange of remote_summary.
    _Atomic(struct heap *) heap;
    // The bitmaps of a slab of at most 64 blocks.
    // Relaxed and release/acquire as free_bits and remote_bits.
    _Atomic(uint64_t) one_word_free, one_word_remote;
};

struct superslab {
    uintptr_t start;  // written by whole_store(): who describes a misuse reads it
    uint64_t free, dirty_young, dirty_old, zero;
    // In no run, and not free: guard pages that the system refused to make accessible again. Each
    // purge tries once more.
    uint64_t stuck;
    // Pages that some thread is giving back to the system without the lock: in no run, not free.
    uint64_t purging;
    // Places whose descriptor only large blocks had, and no run has now.
    uint64_t movable;
    // Relaxed: written under the arena's lock, read without it to find the run of a block in use,
    // whose bits do not change; pairs with nothing.
    _Atomic(uint64_t) run_start;
    // Last round that purged what had aged, and last that took pages of any age (space/arena_purge.c).
    uint64_t purge_round, purge_round_full;
    uint8_t longest;  // length of the longest free stretch
    // enum os_huge_pages: what the system was told when the superslab was taken into use. Written under the arena's
    // lock while it holds nothing, read by who has pages of it.
    uint8_t huge_pages;
    // 1: a part was given back since, and the system told to make no huge page of the rest (space/huge_pages.h).
    // Relaxed: set by who has pages of it, cleared under the arena's lock while it holds nothing; pairs with nothing.
    _Atomic(uint8_t) hollow;
    // Bit i: hollow, and no huge page is left in its i-th part as long as one. Relaxed as `hollow`, and pairs with nothing.
    _Atomic(uint8_t) split;
    struct list all_link, length_link, dirty_link;
    // By the page a run starts at; NULL where none has a descriptor. Release when it comes there, under the arena's
    // lock; acquire by look-ups without it.
    _Atomic(struct run *) runs[SUPERSLAB_PAGES];
};

#define ALL_PAGES UINT64_MAX

static inline bool superslab_is_wholly_free(const struct superslab *superslab) {
    return (superslab->free | superslab->stuck) == ALL_PAGES;
}

// Free and clean: nothing of it is resident but guards that are stuck.
static inline bool superslab_is_spare(const struct superslab *superslab) {
    return superslab_is_wholly_free(superslab) && (superslab->zero | superslab->stuck) == ALL_PAGES;
}

// Free pages that may hold memory.
static inline uint64_t superslab_dirty(const struct superslab *superslab) {
    return superslab->dirty_young | superslab->dirty_old;
}
