// The page map: for each 64 KiB page of the address space, 64 bits that say what it is and what describes it.
//
//   63                                8 7            0
//  +-----------------------------------+--------------+
//  | a slab's descriptor / 64,         | kind         |    kind 0: not a page of this heap, or claimed
//  | or a huge block's number          |              |    by a thread that frees the block
//  +-----------------------------------+--------------+
//
// malloc's other half, free, reads one entry: of a slab's page the kind tells the size class, and with it
// the magazine that takes the block, whoever's heap the slab belongs to (see thread/cache.h). Whoever needs the slab
// itself has it from the same entry: its bitmaps are two loads away from an address.
//
// Normally flat: 16 GiB of address space for addresses of 47 bits, 32 GiB for 48, reserved without
// write access and made writable in windows of 128 KiB (16,384 entries: 1 GiB of addresses) as the
// heap reaches them, so that it costs no commit charge and a foreign address reads 0. Where the
// address space is limited (RLIMIT_AS) and the reservation fails, the windows are separate pieces
// of metadata behind page_map_get(), and the fast path of free is switched off (see thread/cache.h).
#pragma once

#include "base/atomic.h"
#include "base/base.h"
#include "os/os.h"
#include "space/size_class.h"

#define PAGE_MAP_BYTES (((size_t)1 << (ADDRESS_BITS - PAGE_SHIFT)) * sizeof(uint64_t))
#define WINDOW_SHIFT 30
#define WINDOW_PAGES (1u << (WINDOW_SHIFT - PAGE_SHIFT))
#define WINDOW_COUNT (1u << (ADDRESS_BITS - WINDOW_SHIFT))
#define WINDOW_SUPERSLABS (1u << (WINDOW_SHIFT - SUPERSLAB_SHIFT))

#define PAGE_KIND_BITS 8
// A heap's id has a place beside a kind in 32 bits: page_owner().
#define HEAP_ID_SHIFT PAGE_KIND_BITS
#define HEAP_ID_MAX ((1u << 24) - 2)

enum page_kind {
    PAGE_KIND_NONE,
    PAGE_KIND_SLAB,  // of size class 0; the others follow, as size_class_number() counts them
    PAGE_KIND_LARGE = PAGE_KIND_SLAB + SIZE_CLASS_COUNT,
    PAGE_KIND_HUGE,
    PAGE_KIND_GUARDED,
    PAGE_KIND_COUNT,
};

#define PAGE_ENTRY_NONE UINT64_C(0)

static inline uint64_t page_entry(uint64_t number, uint32_t kind) {
    return number << PAGE_KIND_BITS | kind;
}

static inline uint32_t page_entry_kind(uint64_t entry) {
    return (uint8_t)entry;
}

// The size class of a slab's page; SIZE_CLASS_COUNT or more for any other.
static inline uint32_t page_entry_class(uint64_t entry) {
    return page_entry_kind(entry) - PAGE_KIND_SLAB;
}

static inline uint64_t page_entry_number(uint64_t entry) {
    return entry >> PAGE_KIND_BITS;
}

// Descriptors begin at multiples of a cache line.
struct run;

static inline uint64_t page_entry_slab(const struct run *slab, uint64_t class_index) {
    return page_entry((uintptr_t)slab / CACHE_LINE_BYTES, PAGE_KIND_SLAB + (uint32_t)class_index);
}

// Whose a slab is and of which class, in one number, as the events of readers outside of the process tell it.
static inline uint32_t page_owner(uint32_t heap_id, uint64_t class_index) {
    return heap_id << HEAP_ID_SHIFT | (PAGE_KIND_SLAB + (uint32_t)class_index);
}

// The slab of an entry whose page_entry_class() is one. A descriptor lives as long as the process, so that one which an
// entry named once may be looked at, and found to tell of something else by now.
static inline struct run *page_entry_run(uint64_t entry) {
    return (struct run *)(page_entry_number(entry) * CACHE_LINE_BYTES);
}

// Written by whoever holds the page, before a block in it is handed out; the hand-over of
// the block between threads is the program's own synchronisation, which orders the entry as well, so readers are relaxed.
// A reader that holds no block of the page may see any value, and treats it as a claim to check. Release on
// writing pairs with the acquire of page_map_claim(): of a large or huge block whose descriptor it may take for another's. Who
// follows an entry to a descriptor depends on the entry's value, which orders the two for him.
typedef _Atomic(uint64_t) page_entry_atomic;

// The flat map, or NULL in the fallback. Constant once the first heap exists.
HIDDEN extern page_entry_atomic *page_map_flat;

// A stretch of addresses that the heap has reached.
struct superslab;
struct window {
    page_entry_atomic *entries;
    // Release on setting, acquire on reading: the reader dereferences it. NULL where none is.
    _Atomic(struct superslab *) superslabs[WINDOW_SUPERSLABS];
};
// Release when a window is published under the lock, acquire on reading: the reader dereferences.
HIDDEN extern _Atomic(struct window *) page_map_windows[WINDOW_COUNT];

static inline struct window *page_map_window(uintptr_t address) {
    return atomic_load_acquire(&page_map_windows[address >> WINDOW_SHIFT]);
}

// Chooses flat or fallback. Called once, before the first heap is made.
void page_map_init(void);

// Makes the entries of a range writable. False when the system has no memory.
bool page_map_cover(uintptr_t start, size_t bytes);

// For who learns only later where a range of so many bytes is, and then cannot do without: holds what page_map_cover_held() takes. False
// when the system has no memory, or the range is longer than 126 GiB.
bool page_map_hold(size_t bytes);

// page_map_cover() of such a range. False only when the system refuses to make entries of the flat map writable.
bool page_map_cover_held(uintptr_t start, size_t bytes);

// The range must be covered.
void page_map_set(uintptr_t start, size_t page_count, uint64_t entry);

// Sets the entries of a range, that may be a long one, to PAGE_ENTRY_NONE, and gives the memory of the flat map that holds no others
// back to the system. Who reads meanwhile sees the old entry or none. The range must be covered.
void page_map_clear_long(uintptr_t start, size_t page_count);
static inline void page_map_clear(uintptr_t start, size_t page_count) {
    // Fewer pages cannot have two machine pages of entries to themselves, of which less is not worth the call.
    if (unlikely(page_count >= 2 * os_page_bytes() / sizeof(page_entry_atomic))) {
        page_map_clear_long(start, page_count);
    } else {
        page_map_set(start, page_count, PAGE_ENTRY_NONE);
    }
}

// Sets one entry to the calling thread's claim, which is of PAGE_KIND_NONE, if it is `expected`; false when it is not. Of two
// threads that free one block, one succeeds. The range must be covered.
bool page_map_claim(uintptr_t address, uint64_t expected);

// Whether the claim still stands, as far as the caller can have seen. With the descriptor's fields loaded before (acquire): false
// where they tell of a block that began after the claim fell.
bool page_map_claim_stands(uintptr_t address);

// Takes a claim back: sets the entry again, unless the page was given back, or is somebody else's, by now. Claim and this are
// read-modify-writes, so who claims next still pairs with the release of the entry's writer.
void page_map_unclaim(uintptr_t address, uint64_t entry);

uint64_t page_map_get_unflat(uintptr_t address);

// Any address below 2^ADDRESS_BITS.
static inline uint64_t page_map_get(uintptr_t address) {
    return likely(page_map_flat != NULL)
               ? atomic_load_relaxed(&page_map_flat[address >> PAGE_SHIFT])
               : page_map_get_unflat(address);
}

// The superslab (4 MiB, see arena.h) that covers an address, or NULL.
static inline struct superslab *page_map_superslab(uintptr_t address) {
    struct window *window = page_map_window(address);
    return window == NULL
               ? NULL
               : atomic_load_acquire(
                     &window->superslabs[(address >> SUPERSLAB_SHIFT) % WINDOW_SUPERSLABS]);
}
void page_map_set_superslab(uintptr_t address, struct superslab *superslab);

void page_map_fork_lock(void);
void page_map_fork_unlock(void);
