#include "heap/large.h"

#include "base/bits.h"
#include "config/counters.h"
#include "config/options.h"
#include "os/events.h"
#include "os/os.h"
#include "space/page_map.h"

static unsigned pages_for(size_t bytes) {
    return (unsigned)(align_up(bytes, PAGE_BYTES) >> PAGE_SHIFT);
}

// What the program may use: up to the end of the machine's page, not of ours, so that a program
// that fills its usable size does not touch memory it never asked for.
static uint32_t usable_bytes(size_t bytes) {
    return (uint32_t)align_up(bytes, os_page_bytes());
}

// Clears the pages of `used` as far as the block's `bytes` reach: what nobody wrote to need not become resident.
static void clear_used(const struct run *run, uint64_t used, size_t bytes) {
    while (used != 0) {
        const unsigned first = bit_lowest(used);
        const unsigned count = bit_stretch_length(used, first);
        const size_t offset = first * PAGE_BYTES;
        __builtin_memset((char *)run->start + offset, 0,
                         least_u64(count * PAGE_BYTES, bytes - offset));
        used &= ~bit_range(first, count);
    }
}

// Bytes of blocks in use. Relaxed: added to by who takes, resizes and frees them, read by statistics; pairs with nothing.
static _Atomic(uint64_t) live_bytes;

void large_totals(struct large_totals *totals) {
    // A block that goes meanwhile may be among the frees alone.
    const uint64_t frees = atomic_load_relaxed(&process_counters.value[COUNTER_large_frees]);
    const uint64_t allocs = atomic_load_relaxed(&process_counters.value[COUNTER_large_allocs]);
    totals->count = allocs - least_u64(frees, allocs);
    totals->bytes = atomic_load_relaxed(&live_bytes);
}

static void set_bytes(struct run *run, size_t bytes) {
    const uint32_t before = atomic_load_relaxed(&run->large_bytes);
    atomic_store_relaxed(&run->large_bytes, usable_bytes(bytes));
    atomic_add_relaxed(&live_bytes, (uint64_t)usable_bytes(bytes) - before);
}

void *large_alloc(size_t bytes, size_t alignment, bool zero) {
    uint64_t used;
    struct run *run = arena_take(pages_for(bytes), alignment < PAGE_BYTES ? PAGE_BYTES : alignment,
                                 options.guard_gaps != 0, &used);
    if (run == NULL) {
        return NULL;
    }
    atomic_store_relaxed(&run->large_bytes, usable_bytes(bytes));
    atomic_store_relaxed(&run->heap, NULL);
    atomic_store_release(&run->kind, RUN_LARGE);
    page_map_set(run->start, run->page_count, page_entry(0, PAGE_KIND_LARGE));
    count_event(COUNTER_large_allocs, 1);
    atomic_add_relaxed(&live_bytes, usable_bytes(bytes));
    event_record_if_asked(EVENT_large_alloc, run->start, atomic_load_relaxed(&run->large_bytes));
    if (zero) {
        clear_used(run, used, bytes);
    }
    return (void *)run->start;
}

struct run *large_find(uintptr_t address) {
    struct run *run = arena_find(address);
    return run != NULL && run->start == address && atomic_load_relaxed(&run->kind) == RUN_LARGE
               ? run
               : NULL;
}

bool large_free(struct run *run, uintptr_t address) {
    const uint64_t entry = page_entry(0, PAGE_KIND_LARGE);
    if (!page_map_claim(address, entry)) {
        return false;
    }
    // Where two threads free the block at the same moment, and others take what it leaves, the descriptor may tell of
    // another block by now, and the page be within one. The kind before the start: a descriptor moves only while it is free. The
    // claim last: if the descriptor came to a block that begins here since, the claim was overwritten before.
    if (unlikely(atomic_load_acquire(&run->kind) != RUN_LARGE ||
                 whole_load_acquire(&run->start) != address || !page_map_claim_stands(address))) {
        page_map_unclaim(address, entry);
        return false;
    }
    if (options.zero_on_free) {
        __builtin_memset((void *)run->start, 0, atomic_load_relaxed(&run->large_bytes));
    }
    page_map_set(run->start, run->page_count, PAGE_ENTRY_NONE);
    count_event(COUNTER_large_frees, 1);
    atomic_sub_relaxed(&live_bytes, atomic_load_relaxed(&run->large_bytes));
    event_record_if_asked(EVENT_large_free, run->start, atomic_load_relaxed(&run->large_bytes));
    arena_give(run);
    return true;
}

// Of a block that shrinks, what large_free will not know of.
static void clear_rest(struct run *run, size_t bytes) {
    const uint32_t before = atomic_load_relaxed(&run->large_bytes);
    if (bytes < before) {
        __builtin_memset((char *)run->start + bytes, 0, before - bytes);
    }
}

void large_keep(struct run *run, size_t bytes) {
    if (options.zero_on_free) {
        clear_rest(run, usable_bytes(bytes));
    }
    set_bytes(run, bytes);
}

bool large_resize(struct run *run, size_t bytes) {
    const unsigned pages = pages_for(bytes);
    if (run->guarded && pages <= run->page_count / 2) {
        return false;  // what is in front of the guard would stay for good: it is copied
    }
    if (options.zero_on_free) {
        clear_rest(run, usable_bytes(bytes));
    }
    if (pages > run->page_count) {
        const unsigned before = run->page_count;
        if (!arena_extend(run, pages)) {
            return false;
        }
        page_map_set(run->start + before * PAGE_BYTES, pages - before,
                     page_entry(0, PAGE_KIND_LARGE));
    } else if (pages < run->page_count && !run->guarded) {
        page_map_set(run->start + pages * PAGE_BYTES, run->page_count - pages, PAGE_ENTRY_NONE);
        arena_shorten(run, pages);
    }
    set_bytes(run, bytes);
    return true;
}
