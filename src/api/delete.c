// C++ operator delete, under its mangled names. Every form is free, unless the program replaced one.
//
// The standard defines most forms by another: delete[] by delete, the sized and the nothrow ones by
// those without. A program that replaces the other one gets their calls too. Two things make that
// free of charge for everybody else. The linker binds the library's own calls to the library, but
// not those of the eight forms in replaceable.list: their addresses here are those in force in the
// process. And the hit path of a form that is defined by another compares with delete_address_max, which
// matches nothing until the slow path has seen that nothing is replaced.
#include "api/alloc.h"

// The forms that others are defined by.
EXPORTED void _ZdlPv(void *block);
EXPORTED void _ZdaPv(void *block);
EXPORTED void _ZdlPvSt11align_val_t(void *block, size_t alignment);
EXPORTED void _ZdaPvSt11align_val_t(void *block, size_t alignment);

// The library's own, whatever is in force.
#define OWN(name) __attribute__((alias(#name), visibility("hidden")))
void hakmem_own_delete(void *block) OWN(_ZdlPv);
void hakmem_own_delete_array(void *block) OWN(_ZdaPv);
void hakmem_own_delete_aligned(void *block, size_t alignment) OWN(_ZdlPvSt11align_val_t);
void hakmem_own_delete_array_aligned(void *block, size_t alignment) OWN(_ZdaPvSt11align_val_t);

// The compiler must not conclude that an alias has its target's address.
#define DIFFER(in_force, own)                       \
    ({                                              \
        __typeof__(&(in_force)) form_ = (in_force); \
        __asm__("" : "+r"(form_));                  \
        form_ != (own);                             \
    })

static bool delete_is_replaced(void) {
    return DIFFER(_ZdlPv, hakmem_own_delete);
}

static bool delete_array_is_replaced(void) {
    return DIFFER(_ZdaPv, hakmem_own_delete_array) || delete_is_replaced();
}

static bool delete_aligned_is_replaced(void) {
    return DIFFER(_ZdlPvSt11align_val_t, hakmem_own_delete_aligned);
}

static bool delete_array_aligned_is_replaced(void) {
    return DIFFER(_ZdaPvSt11align_val_t, hakmem_own_delete_array_aligned) ||
           delete_aligned_is_replaced();
}

FAST_PATH bool delete_hit(void *block) {
    struct thread_cache *cache = thread_cache;
    return likely(cache_push(cache, cache->delete_address_max, block));
}

static bool deletes_are_trusted(void) {
    return thread_cache->deletes_trusted != 0;
}

// From now on this thread's deletes hit as its frees do. A thread without a cache of its own never
// hits, and asks each time.
static void trust_deletes(void) {
    if (cache_is_real(thread_cache) && !delete_array_is_replaced()) {
        thread_cache->deletes_trusted = 1;
        thread_cache->delete_address_max = thread_cache->address_max;
    }
}

// ---- Plain ----

EXPORTED_FAST void _ZdlPv(void *block) {
    dealloc(block);
}

MIDDLE_PATH static void delete_array_slow(void *block) {
    if (likely(deletes_are_trusted())) {
        free_slow(block);
    } else if (delete_is_replaced()) {
        _ZdlPv(block);
    } else {
        trust_deletes();
        dealloc(block);
    }
}

EXPORTED_FAST void _ZdaPv(void *block) {
    if (unlikely(!delete_hit(block))) {
        delete_array_slow(block);
    }
}

// ---- Sized ----

MIDDLE_PATH static void delete_sized_slow(void *block, size_t bytes) {
    if (likely(deletes_are_trusted())) {
        free_sized_slow(block, BLOCK_ALIGN, bytes);
    } else if (delete_is_replaced()) {
        _ZdlPv(block);
    } else {
        trust_deletes();
        dealloc_sized(block, BLOCK_ALIGN, bytes);
    }
}

MIDDLE_PATH static void delete_array_sized_slow(void *block, size_t bytes) {
    if (likely(deletes_are_trusted())) {
        free_sized_slow(block, BLOCK_ALIGN, bytes);
    } else if (delete_array_is_replaced()) {
        _ZdaPv(block);
    } else {
        trust_deletes();
        dealloc_sized(block, BLOCK_ALIGN, bytes);
    }
}

EXPORTED void _ZdlPvm(void *block, size_t bytes);
EXPORTED_FAST void _ZdlPvm(void *block, size_t bytes) {
    if (unlikely(!delete_hit(block))) {
        delete_sized_slow(block, bytes);
    }
}

EXPORTED void _ZdaPvm(void *block, size_t bytes);
EXPORTED_FAST void _ZdaPvm(void *block, size_t bytes) {
    if (unlikely(!delete_hit(block))) {
        delete_array_sized_slow(block, bytes);
    }
}

// ---- Nothrow ----

EXPORTED void _ZdlPvRKSt9nothrow_t(void *block, const void *nothrow);
EXPORTED void _ZdlPvRKSt9nothrow_t(void *block, const void *nothrow) {
    (void)nothrow;
    _ZdlPv(block);
}

EXPORTED void _ZdaPvRKSt9nothrow_t(void *block, const void *nothrow);
EXPORTED void _ZdaPvRKSt9nothrow_t(void *block, const void *nothrow) {
    (void)nothrow;
    _ZdaPv(block);
}

// ---- Aligned ----

EXPORTED void _ZdlPvSt11align_val_t(void *block, size_t alignment) {
    (void)alignment;
    dealloc(block);
}

EXPORTED void _ZdaPvSt11align_val_t(void *block, size_t alignment) {
    _ZdlPvSt11align_val_t(block, alignment);
}

// The C++ forms pass the size before the alignment.
EXPORTED void _ZdlPvmSt11align_val_t(void *block, size_t bytes, size_t alignment);
EXPORTED void _ZdlPvmSt11align_val_t(void *block, size_t bytes, size_t alignment) {
    if (unlikely(delete_aligned_is_replaced())) {
        _ZdlPvSt11align_val_t(block, alignment);
    } else {
        dealloc_sized(block, alignment, bytes);
    }
}

EXPORTED void _ZdaPvmSt11align_val_t(void *block, size_t bytes, size_t alignment);
EXPORTED void _ZdaPvmSt11align_val_t(void *block, size_t bytes, size_t alignment) {
    if (unlikely(delete_array_aligned_is_replaced())) {
        _ZdaPvSt11align_val_t(block, alignment);
    } else {
        dealloc_sized(block, alignment, bytes);
    }
}

EXPORTED void _ZdlPvSt11align_val_tRKSt9nothrow_t(void *block, size_t alignment,
                                                  const void *nothrow);
EXPORTED void _ZdlPvSt11align_val_tRKSt9nothrow_t(void *block, size_t alignment,
                                                  const void *nothrow) {
    (void)nothrow;
    _ZdlPvSt11align_val_t(block, alignment);
}

EXPORTED void _ZdaPvSt11align_val_tRKSt9nothrow_t(void *block, size_t alignment,
                                                  const void *nothrow);
EXPORTED void _ZdaPvSt11align_val_tRKSt9nothrow_t(void *block, size_t alignment,
                                                  const void *nothrow) {
    (void)nothrow;
    _ZdaPvSt11align_val_t(block, alignment);
}
