// Frees of other heaps' blocks. A block goes one of three ways, the cheapest that serves:
//
// - cache_free_neighbour() (cache.h): the thread's last word of remote frees takes it.
// - remote_adopt(): a thread that allocates blocks of the class as well keeps it in its own magazine, for
//   its next allocations. It leaves the magazine like any other block, by the slab's descriptor (heap_put).
// - remote_free(): to the word of its slab in the thread's table, and with it, up to 64 blocks in one atomic
//   operation, to its heap.
//
// Why not all blocks are adopted: docs/decisions/0009-blocks-of-other-heaps.md.
#pragma once

#include "thread/cache.h"

// One adopted block in so many goes home instead: the next refill replaces it by one of the thread's own
// heap, so that a thread that took over others' blocks for good ends up with blocks whose frees are hits.
#define ADOPTIONS_PER_RETURN 16

// False unless the block was kept: for anything but a block of a slab that is in use as far as the bitmaps
// and the last free tell; and when the thread has not refilled the class since its magazine last
// overflowed, since a thread that only frees would keep blocks that it never needs.
FAST_PATH bool remote_adopt(struct thread_cache *cache, uintptr_t address) {
    if (unlikely(address > cache->address_max)) {
        return false;
    }
    const uint32_t entry = atomic_load_relaxed(&cache->page_map[address >> PAGE_SHIFT]);
    const uint32_t class_index = page_entry_kind(entry);
    if (class_index >= SIZE_CLASS_COUNT || !cache->magazines[class_index].refilled) {
        return false;
    }
    // Full is also a class without a node, and any class while operations are diverted.
    void **top = slot_load(cache->top, class_index);
    if (unlikely(((uintptr_t)top & (NODE_BYTES - 1)) == 0 || top[-1] == (void *)address) ||
        ++cache->adoptions % ADOPTIONS_PER_RETURN == 0) {
        return false;
    }
    const struct run *slab = arena_find_inline(address);
    if (unlikely(slab == NULL || !run_is_slab(slab))) {
        return false;
    }
    const int index = slab_index(slab, address);
    if (unlikely(index < 0 || slab_is_free(slab, (unsigned)index))) {
        return false;
    }
    *top = (void *)address;
    slot_store(cache->top, class_index, top + 1);
    return true;
}

// Frees a block of another heap. Reports a pointer that is none.
void remote_free(struct thread_cache *cache, struct run *slab, void *block);

// Hands all pending remote frees to their heaps.
void remote_publish(struct thread_cache *cache);
