// The descriptors of huge blocks: every one is live, kept for reuse, being unmapped, or unused. What is behind
// heap/huge.h, heap/kept.h and heap/leaving.h; all functions want the table's lock.
//
// A mapping may consist of several pieces: pages that were moved here from kept mappings lie beside pages
// that were here already. For the program and for unmapping, purging and guarding it is one range; but the
// system moves and lengthens each piece by itself, so its seams are remembered.
#pragma once

#include "base/atomic.h"
#include "base/base.h"
#include "base/list.h"
#include "os/lock.h"
#include "space/excess.h"

// Of one mapping, and seams of all together: each is an entry in the system's list of mappings, of which a
// process may have 65,530.
#define HUGE_PIECES_MAX 16
#define HUGE_SEAMS_MAX 4096

struct huge {
    // A second free of a block reads both: `start` is written by whole_store_release(), `usable_bytes` by whole_store().
    uintptr_t start;
    size_t usable_bytes;  // multiple of the machine's page
    size_t mapped_bytes;  // usable and the guard behind it
    uint64_t freed_ms;
    uintptr_t unmapper;       // HUGE_LEAVING: the thread pointer of who makes the system call
    uint64_t leaving_number;  // HUGE_LEAVING: the table's, when it came to the list
    size_t
        probed_bytes;  // usable_bytes when it was given out with a clean part (heap/zeroing.h); else 0
    // From here on its memory came from the system for this block, without asking for huge pages, and was not looked at
    // since; not below usable_bytes: none (heap/block_pages.h).
    size_t fresh_offset;
    uint32_t number;
    uint8_t state;  // enum huge_state
    uint8_t seam_count;
    // 1: HUGE_KEPT, and the system refused to move a part since it was freed: the program divided the mapping (madvise,
    // mlock), or the system had no memory.
    uint8_t immovable;
    uint8_t asked;                // enum huge_asked
    uint8_t may_have_huge_pages;  // 1: a part of it asked for them once
    uint8_t unmapping;            // 1: HUGE_LEAVING, and the system call is under way
    // 1: freed memory is to be cleared (zero_on_free), and this is not: by hand, if the system does not take it either.
    uint8_t uncleared;
    // 1: the system refused to unmap it since it was freed, and took the memory behind it, or that was cleared.
    uint8_t emptied;
    uint8_t refused;  // 1: HUGE_KEPT, and the system refused to unmap it
    struct list link;
    uintptr_t seams[HUGE_PIECES_MAX - 1];  // where the second piece and later ones start, ascending
};

// How much of the mapping the system was asked to put huge pages behind, and not told otherwise since.
enum huge_asked { HUGE_ASKED_NOT, HUGE_ASKED_IN_PART, HUGE_ASKED_WHOLE };

enum huge_state { HUGE_UNUSED, HUGE_LIVE, HUGE_KEPT, HUGE_LEAVING };

// Descriptors come in chunks that are never freed, so a number from the page map, even a stale one,
// always names a descriptor.
#define HUGE_CHUNK_COUNT 32
#define HUGE_CHUNKS_MAX 32768

// The latest parts of fresh memory that were looked at, each of LOOKED_BYTES (heap/block_pages.c): what of it was resident, and how long
// the block was; 0: nothing yet.
#define HUGE_LOOKS 4
struct huge_looks {
    uint32_t count;
    uint64_t resident_bytes[HUGE_LOOKS];
    uint64_t block_bytes[HUGE_LOOKS];
    uint64_t touch_ns;  // of the latest block whose first huge page was slow, until the next look
};

// All huge blocks. Changed in huge_table.c, block_pages.c, kept.c, leaving.c, zeroing.c and huge.c alone.
struct huge_table {
    struct lock lock;
    bool ready;
    uint32_t chunk_count;
    uint32_t seam_count;  // of all mappings
    struct list live, kept, leaving, unused;
    uint64_t live_bytes, live_count;
    uint64_t peak_bytes;        // highest live_bytes so far
    uint32_t arena_peak_pages;  // as the kept mappings have made room for
    struct excess excess;
    uint32_t zeroed_count;  // blocks that were to read as zero, while `clears`
    struct huge_looks looks;
    uint32_t
        asked_count;  // blocks that asked for huge pages because the learner says so, and probes
    bool asks;        // what the learner said last
    bool clears;      // kept pages are cleared for such: heap/zeroing.h
    uint64_t
        decay_due_ms;  // when the raise of its bound decays next; looked at while mappings are kept
    uint64_t seen_ms;  // the latest time that a mapping was freed, or looked for as aged
    // Relaxed: written under the lock, read by pacing; pairs with nothing.
    _Atomic(uint64_t) kept_bytes;
    // Descriptors that were on the list `leaving`, modulo 2^32. Relaxed: changed under the lock; the kernel
    // compares it before a thread that saw it there sleeps. Pairs with nothing.
    _Atomic(uint32_t) left_count;
    uint32_t waiting_count;   // threads that wait for it
    uint32_t forking_count;   // of them, those that are to fork
    uint64_t leaving_number;  // of the latest that came to the list `leaving`
    uint32_t kept_count;      // mappings on the list `kept`
};
HIDDEN extern struct huge_table huge_table_state;  // for control/inspect.c as well

// Of the kept bytes, those in mappings that the system refused to unmap. Under the table's lock, and apart from it: hardly ever written.
HIDDEN extern uint64_t huge_refused_bytes;

// Apart from the table, which starts with a value: this way only what is used of it is resident.
// Release when a chunk is published under the lock, acquire on looking a number up.
HIDDEN extern _Atomic(struct huge *) huge_chunks[HUGE_CHUNKS_MAX];

// Makes the lists of the table, once.
void huge_table_prepare(void);

// NULL when no descriptor has the number. Does not want the lock.
struct huge *huge_numbered(uint32_t number);

// An unused descriptor, still on its list; NULL when the system has no memory.
struct huge *huge_unused(void);

// To the list of a state. The bytes of lists are the caller's to keep.
void huge_move_to(struct huge *huge, enum huge_state state);

// Adds to the bytes of kept mappings, of which this is one, or is about to be.
void huge_count_kept(const struct huge *huge, int64_t bytes);

// The lock is held.
static inline void huge_note_time(uint64_t now_ms) {
    if (now_ms > huge_table_state.seen_ms ||
        unlikely(os_clock_went_back(huge_table_state.seen_ms, now_ms))) {
        huge_table_state.seen_ms = now_ms;
    }
}

// What the system refused to unmap is kept again, as if it were freed now: it is not tried again until then.
void huge_keep_again(struct huge *huge);

// Of the guard behind the block, or 0: it has none.
static inline size_t huge_guard_bytes(const struct huge *huge) {
    return huge->mapped_bytes - huge->usable_bytes;
}

static inline uintptr_t huge_last_piece(const struct huge *huge) {
    return huge->seam_count == 0 ? huge->start : huge->seams[huge->seam_count - 1];
}

// Whether another piece may come to the mapping, between two seams.
bool huge_has_room_for_piece(const struct huge *huge);

// A seam at an address within the mapping, at or behind the last one; at most HUGE_PIECES_MAX - 1.
void huge_add_seam(struct huge *huge, uintptr_t address);

// The mapping now ends at `end`: seams from there on are no more.
void huge_forget_seams(struct huge *huge, uintptr_t end);
