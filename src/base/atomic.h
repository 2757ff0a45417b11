// C11 atomics with the memory order in the name, so that a reader sees it at the call.
// Each atomic field states at its declaration who writes, who reads and what it pairs with.
#pragma once

#include <stdatomic.h>

#include "base/base.h"
#include "base/sharing.h"

#define atomic_load_relaxed(field) atomic_load_explicit((field), memory_order_relaxed)
#define atomic_load_acquire(field) atomic_load_explicit((field), memory_order_acquire)
#define atomic_store_relaxed(field, value) \
    atomic_store_explicit((field), (value), memory_order_relaxed)
#define atomic_store_release(field, value) \
    atomic_store_explicit((field), (value), memory_order_release)
#define atomic_exchange_relaxed(field, value)   \
    SHARING_COUNTED("exchange_relaxed " #field, \
                    atomic_exchange_explicit((field), (value), memory_order_relaxed))
#define atomic_exchange_acquire(field, value)   \
    SHARING_COUNTED("exchange_acquire " #field, \
                    atomic_exchange_explicit((field), (value), memory_order_acquire))
#define atomic_exchange_release(field, value)   \
    SHARING_COUNTED("exchange_release " #field, \
                    atomic_exchange_explicit((field), (value), memory_order_release))
#define atomic_exchange_acq_rel(field, value)   \
    SHARING_COUNTED("exchange_acq_rel " #field, \
                    atomic_exchange_explicit((field), (value), memory_order_acq_rel))
#define atomic_or_relaxed(field, value)   \
    SHARING_COUNTED("or_relaxed " #field, \
                    atomic_fetch_or_explicit((field), (value), memory_order_relaxed))
#define atomic_or_release(field, value)   \
    SHARING_COUNTED("or_release " #field, \
                    atomic_fetch_or_explicit((field), (value), memory_order_release))
#define atomic_or_acq_rel(field, value)   \
    SHARING_COUNTED("or_acq_rel " #field, \
                    atomic_fetch_or_explicit((field), (value), memory_order_acq_rel))
#define atomic_add_relaxed(field, value)   \
    SHARING_COUNTED("add_relaxed " #field, \
                    atomic_fetch_add_explicit((field), (value), memory_order_relaxed))
#define atomic_add_release(field, value)   \
    SHARING_COUNTED("add_release " #field, \
                    atomic_fetch_add_explicit((field), (value), memory_order_release))
#define atomic_sub_relaxed(field, value)   \
    SHARING_COUNTED("sub_relaxed " #field, \
                    atomic_fetch_sub_explicit((field), (value), memory_order_relaxed))
#define atomic_cas_acquire(field, expected, desired)                                \
    SHARING_COUNTED("cas_acquire " #field, atomic_compare_exchange_strong_explicit( \
                                               (field), (expected), (desired),      \
                                               memory_order_acquire, memory_order_relaxed))
#define atomic_cas_weak_release(field, expected, desired)                              \
    SHARING_COUNTED("cas_weak_release " #field, atomic_compare_exchange_weak_explicit( \
                                                    (field), (expected), (desired),    \
                                                    memory_order_release, memory_order_relaxed))

// A value with one writer at a time (the holder of a lock) and readers without the lock, who
// tolerate a stale value: a plain load and store, but never torn.
#define atomic_bump_owned(field, value) \
    atomic_store_relaxed((field), atomic_load_relaxed(field) + (value))

// A field that is its owner's, and that a thread which frees what it does not own may read at any time (docs/MEMORY_ORDER.md):
// read and written whole, relaxed. Only for what such a thread reads; pairs with nothing.
#define whole_load(field) __atomic_load_n((field), __ATOMIC_RELAXED)
#define whole_store(field, value) __atomic_store_n((field), (value), __ATOMIC_RELAXED)

// The same where the order counts: who reads the value with the first sees all that came before the second.
#define whole_load_acquire(field) __atomic_load_n((field), __ATOMIC_ACQUIRE)
#define whole_store_release(field, value) __atomic_store_n((field), (value), __ATOMIC_RELEASE)

// The slots of an array of pointers that one thread writes and others may read with
// atomic_load_relaxed(): aligned moves of one machine word, never torn on any processor we know.
// Written without _Atomic accessors because those cost GCC an address computation that the malloc
// path has no instruction to spare for (tests/hotpath); ThreadSanitizer sees the atomics they are.
#if defined(__SANITIZE_THREAD__)
#define HAKMEM_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HAKMEM_THREAD_SANITIZER 1
#endif
#endif

// Between relaxed stores whose order only readers outside of the process see: ThreadSanitizer knows no fences, and
// sees no such reader either.
#if defined(HAKMEM_THREAD_SANITIZER)
#define atomic_fence_release() ((void)0)
#else
#define atomic_fence_release() atomic_thread_fence(memory_order_release)
#endif

#if defined(HAKMEM_THREAD_SANITIZER)
#define slot_load(slots, index) __atomic_load_n(&(slots)[index], __ATOMIC_RELAXED)
#define slot_store(slots, index, value) __atomic_store_n(&(slots)[index], (value), __ATOMIC_RELAXED)
#else
#define slot_load(slots, index) ((slots)[index])
#define slot_store(slots, index, value) ((void)((slots)[index] = (value)))
#endif

// slots[index] += 1 as one instruction on x86-64: the same single store, without a register for the
// sum. An array and an index, because a single pointer would cost an address computation.
#if defined(__x86_64__) && !defined(HAKMEM_THREAD_SANITIZER)
#define slot_advance(slots, index) \
    __asm__ volatile("addq $8, (%0,%1,8)" ::"r"(slots), "r"((uint64_t)(index)) : "memory", "cc")
#else
#define slot_advance(slots, index) slot_store(slots, index, slot_load(slots, index) + 1)
#endif
