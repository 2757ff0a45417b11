// The route of a malloc and of a free, on one screen. malloc.c gives these libc's names. After a change of it run tests/hotpath,
// which counts its instructions, and the rows tiny_lifo and mixed_small of `make bench`.
//
//   malloc(n)   size class of n -> pop the thread's magazine of that class        (fast)
//               empty -> depot -> refill from a slab of the thread's heap         thread/cache.c
//               above 64 KiB -> run of pages; above 2 MiB -> mapping of its own   heap/large.c, huge.c
//
//   free(p)     page map entry of p: its class -> push on the thread's magazine   (fast)
//               full -> depot -> flush to the slabs, of this heap or another      thread/cache.c
//               no small block: large; huge; else misuse                          alloc.c
//
//   realloc(p)  page map entry of p, its slab's bitmaps: whether it is in use         resize.c
#pragma once

#include "base/bits.h"
#include "thread/cache.h"

// Everything that does not end in a hit. They set errno to ENOMEM on failure; free keeps errno.
void *alloc_slow(size_t bytes);
// The same for who can do without: a failure leaves errno and is not counted as one.
void *alloc_attempt(size_t bytes);
void *alloc_aligned_slow(size_t alignment, size_t bytes);
// A large or huge block was resized where it lies: a slow path as well, for a program that has no other. May change errno.
void alloc_resized(void);
void free_slow(void *block);
void free_sized_slow(void *block, size_t alignment, size_t bytes);

// NULL when the magazine is empty, or nothing small serves.
FAST_PATH void *alloc_hit(size_t bytes) {
    struct thread_cache *cache = thread_cache;
    return unlikely(bytes > SMALL_BYTES_MAX) ? NULL : cache_pop(cache, size_class_number(bytes));
}

FAST_PATH void *alloc(size_t bytes) {
    void *block = alloc_hit(bytes);
    return likely(block != NULL) ? block : alloc_slow(bytes);
}

// NULL when the magazine is empty, nothing small serves, or the alignment is no power of two.
FAST_PATH void *alloc_aligned_hit(size_t alignment, size_t bytes) {
    struct thread_cache *cache = thread_cache;
    if (unlikely((alignment & (alignment - 1)) != 0 || alignment > SMALL_BYTES_MAX ||
                 bytes > SMALL_BYTES_MAX)) {
        return NULL;
    }
    // Of a multiple of the alignment the smallest class is one as well (size_class.def, but for 4,368); of that one, of
    // other tables and of 0 bytes a block is taken if it happens to be aligned.
    return cache_pop_aligned(cache, size_class_number(align_up(bytes, alignment)), alignment);
}

FAST_PATH void *alloc_aligned(size_t alignment, size_t bytes) {
    void *block = alloc_aligned_hit(alignment, bytes);
    return likely(block != NULL) ? block : alloc_aligned_slow(alignment, bytes);
}

FAST_PATH bool dealloc_hit(void *block) {
    struct thread_cache *cache = thread_cache;
    return likely(cache_push(cache, cache->address_max, block));
}

FAST_PATH void dealloc(void *block) {
    if (unlikely(!dealloc_hit(block))) {
        free_slow(block);
    }
}

// The size serves a check that only the hardened mode makes, in which no free is a hit.
FAST_PATH void dealloc_sized(void *block, size_t alignment, size_t bytes) {
    if (unlikely(!dealloc_hit(block))) {
        free_sized_slow(block, alignment, bytes);
    }
}

// The same under names of their own, for tests and sanitizers that keep their own malloc. Semantics
// of malloc, calloc (of the product), memalign, free, realloc and malloc_usable_size of glibc:
// hakmem_alloc(0) is a block of its own; a block of hakmem_alloc_aligned is freed like any other;
// an alignment that is no power of two is raised to the next one; hakmem_resize(p, 0) frees p and
// returns NULL.
void *hakmem_alloc(size_t bytes);
void *hakmem_alloc_zeroed(size_t bytes);
void *hakmem_alloc_aligned(size_t alignment, size_t bytes);
void hakmem_dealloc(void *block);
void *hakmem_resize(void *block, size_t bytes);
size_t hakmem_block_bytes(const void *block);
