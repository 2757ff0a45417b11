// The C library's names for hakmem, with glibc's semantics. Those that glibc alone has: glibc.c.
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>

#include "api/alloc.h"
#include "api/libc_version.h"
#include "base/bits.h"
#include "os/os.h"

// Aliases below carry no promises to the optimiser, unlike libc's declarations of their targets.
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmissing-attributes"
#endif

EXPORTED_FAST void *malloc(size_t bytes) {
    return alloc(bytes);
}

EXPORTED_FAST void free(void *block) {
    dealloc(block);
}

EXPORTED void *calloc(size_t count, size_t bytes) {
    size_t product;
    if (unlikely(__builtin_mul_overflow(count, bytes, &product))) {
        errno = ENOMEM;
        return NULL;
    }
    return hakmem_alloc_zeroed(product);
}

EXPORTED void *realloc(void *block, size_t bytes) {
    return hakmem_resize(block, bytes);
}

EXPORTED void *reallocarray(void *block, size_t count, size_t bytes) {
    size_t product;
    if (unlikely(__builtin_mul_overflow(count, bytes, &product))) {
        errno = ENOMEM;
        return NULL;
    }
    // By its name: a program may have a realloc of its own and take reallocarray for the C library's, which calls it. And, as below,
    // Valgrind puts itself in the place of what it knows, and then gets what comes from here as well.
    return realloc(block, product);
}

MIDDLE_PATH static void *memalign_slow(size_t alignment, size_t bytes) {
    // glibc: above half the address space an alignment is a usage error, not want of memory.
    if (unlikely(alignment > SIZE_MAX / 2 + 1)) {
        errno = EINVAL;
        return NULL;
    }
    return alloc_aligned_slow(alignment, bytes);
}

EXPORTED_FAST void *memalign(size_t alignment, size_t bytes) {
    void *block = alloc_aligned_hit(alignment, bytes);
    return likely(block != NULL) ? block : memalign_slow(alignment, bytes);
}

// As the C library that the process has: glibc refuses what is no power of two since 2.38, as C17 wants it; 0 too, which musl takes.
static bool is_refused(size_t alignment) {
#if defined(__GLIBC__)
    return !is_power_of_two(alignment) && glibc_is_at_least(38);
#else
    return alignment != 0 && !is_power_of_two(alignment);
#endif
}

MIDDLE_PATH static void *aligned_alloc_slow(size_t alignment, size_t bytes) {
    if (unlikely(is_refused(alignment))) {
        errno = EINVAL;
        return NULL;
    }
    return memalign_slow(alignment, bytes);
}

EXPORTED_FAST void *aligned_alloc(size_t alignment, size_t bytes) {
    void *block = alloc_aligned_hit(alignment, bytes);
    return likely(block != NULL) ? block : aligned_alloc_slow(alignment, bytes);
}

MIDDLE_PATH static int posix_memalign_slow(void **result, size_t alignment, size_t bytes) {
    if (!is_power_of_two(alignment) || alignment % sizeof(void *) != 0) {
        return EINVAL;
    }
    void *block = alloc_aligned_slow(alignment, bytes);
    if (block == NULL) {
        return ENOMEM;  // in errno too, as with glibc: some programs look there
    }
    *result = block;
    return 0;
}

EXPORTED_FAST int posix_memalign(void **result, size_t alignment, size_t bytes) {
    void *block =
        likely(alignment % sizeof(void *) == 0) ? alloc_aligned_hit(alignment, bytes) : NULL;
    if (unlikely(block == NULL)) {
        return posix_memalign_slow(result, alignment, bytes);
    }
    *result = block;
    return 0;
}

EXPORTED void *valloc(size_t bytes) {
    return hakmem_alloc_aligned(os_page_bytes(), bytes);
}

EXPORTED void *pvalloc(size_t bytes) {
    const size_t page_bytes = os_page_bytes();
    if (unlikely(bytes > SIZE_MAX - page_bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return valloc(align_up(bytes, page_bytes));
}

EXPORTED size_t malloc_usable_size(void *block) {
    return hakmem_block_bytes(block);
}

EXPORTED void free_sized(void *block, size_t bytes) {
    dealloc_sized(block, BLOCK_ALIGN, bytes);
}

EXPORTED void free_aligned_sized(void *block, size_t alignment, size_t bytes) {
    dealloc_sized(block, alignment, bytes);
}

// Old programs that were linked when the C library had it.
EXPORTED void cfree(void *block);
EXPORTED void cfree(void *block) {
    dealloc(block);
}

// ---- glibc's second names ----

#if defined(__GLIBC__)
#define SECOND_NAME(name) __attribute__((alias(#name), visibility("default")))
void *__libc_malloc(size_t bytes) SECOND_NAME(malloc);
void __libc_free(void *block) SECOND_NAME(free);
void *__libc_calloc(size_t count, size_t bytes) SECOND_NAME(calloc);
void *__libc_realloc(void *block, size_t bytes) SECOND_NAME(realloc);
void *__libc_reallocarray(void *block, size_t count, size_t bytes) SECOND_NAME(reallocarray);
void *__libc_memalign(size_t alignment, size_t bytes) SECOND_NAME(memalign);
void *__libc_valloc(size_t bytes) SECOND_NAME(valloc);
void *__libc_pvalloc(size_t bytes) SECOND_NAME(pvalloc);
int __posix_memalign(void **result, size_t alignment, size_t bytes) SECOND_NAME(posix_memalign);

// What the static C library's other objects use of its malloc object.
void *__malloc(size_t bytes) SECOND_NAME(malloc);
void __free(void *block) SECOND_NAME(free);
void *__calloc(size_t count, size_t bytes) SECOND_NAME(calloc);
void *__realloc(void *block, size_t bytes) SECOND_NAME(realloc);
void *__memalign(size_t alignment, size_t bytes) SECOND_NAME(memalign);
void *__valloc(size_t bytes) SECOND_NAME(valloc);
void *__pvalloc(size_t bytes) SECOND_NAME(pvalloc);
size_t __malloc_usable_size(void *block) SECOND_NAME(malloc_usable_size);
#endif
