// The names under which the model test calls the allocator: libc's own (preloaded, linked, or
// glibc itself), the core's internal entry points (HAKMEM_INTERNAL, for sanitizer builds), or the
// allocator with planted faults that shows what the test can find (MODEL_CONTROL).
#pragma once

#include <stddef.h>
#include <stdlib.h>

#if defined(HAKMEM_INTERNAL)

#include "api/alloc.h"

#define model_malloc(bytes) hakmem_alloc(bytes)
#define model_calloc(bytes) hakmem_alloc_zeroed(bytes)
#define model_realloc(block, bytes) hakmem_resize(block, bytes)
#define model_memalign(alignment, bytes) hakmem_alloc_aligned(alignment, bytes)
#define model_free(block) hakmem_dealloc(block)
#define model_usable(block) hakmem_block_bytes(block)

#elif defined(MODEL_CONTROL)

#include "control.h"

#define model_malloc(bytes) control_malloc(bytes)
#define model_calloc(bytes) control_calloc(bytes)
#define model_realloc(block, bytes) control_realloc(block, bytes)
#define model_memalign(alignment, bytes) control_memalign(alignment, bytes)
#define model_free(block) control_free(block)
#define model_usable(block) control_usable(block)

#else

#include <malloc.h>

#define model_malloc(bytes) malloc(bytes)
// The two factors of calloc and reallocarray both have their turn.
#define model_calloc(bytes) ((bytes) % 3 == 0 ? calloc(3, (bytes) / 3) : calloc(1, bytes))
#define model_realloc(block, bytes) \
    ((bytes) % 7 == 0 ? reallocarray(block, 7, (bytes) / 7) : realloc(block, bytes))
#define model_memalign(alignment, bytes) model_any_memalign(alignment, bytes)
#define model_free(block) free(block)
#define model_usable(block) malloc_usable_size(block)

static inline void *model_any_memalign(size_t alignment, size_t bytes) {
    if (bytes % 3 == 0) {
        return aligned_alloc(alignment, bytes);
    }
    if (bytes % 3 == 1) {
        return memalign(alignment, bytes);
    }
    void *block = NULL;
    return posix_memalign(&block, alignment < 8 ? 8 : alignment, bytes) == 0 ? block : NULL;
}

#endif
