// The atomics of src/base/atomic.h, each a step of the explored program (explorer.h). Found before the real
// header, which still gives the rest.
#pragma once

#include_next "base/atomic.h"

#include "../../explorer.h"

#undef atomic_load_relaxed
#undef atomic_load_acquire
#undef atomic_store_relaxed
#undef atomic_store_release
#undef atomic_exchange_acquire
#undef atomic_exchange_release
#undef atomic_exchange_acq_rel
#undef atomic_or_release
#undef atomic_or_acq_rel
#undef atomic_add_relaxed
#undef atomic_add_release
#undef atomic_sub_relaxed
#undef atomic_cas_acquire
#undef atomic_cas_weak_release
#undef whole_load
#undef whole_store
#undef whole_load_acquire
#undef whole_store_release

// What a field holds, without _Atomic.
#define STEP_TYPE(field) __typeof__(((void)0, *(field)))
#define STEP_FIELD(field) #field, (void *)(uintptr_t)(field), sizeof *(field)
#define STEP_VALUE(field, value) (uint64_t)(STEP_TYPE(field))(value)

#define atomic_load_relaxed(field) ((STEP_TYPE(field))step_load(STEP_FIELD(field), RELAXED))
#define atomic_load_acquire(field) ((STEP_TYPE(field))step_load(STEP_FIELD(field), ACQUIRE))
#define whole_load(field) atomic_load_relaxed(field)
#define whole_store(field, value) atomic_store_relaxed(field, value)
#define whole_load_acquire(field) atomic_load_acquire(field)
#define whole_store_release(field, value) atomic_store_release(field, value)
#define atomic_store_relaxed(field, value) \
    step_store(STEP_FIELD(field), STEP_VALUE(field, value), RELAXED)
#define atomic_store_release(field, value) \
    step_store(STEP_FIELD(field), STEP_VALUE(field, value), RELEASE)
#define STEP_UPDATE(field, operation, value, order) \
    ((STEP_TYPE(field))step_update(STEP_FIELD(field), operation, STEP_VALUE(field, value), order))
#define atomic_exchange_acquire(field, value) STEP_UPDATE(field, STEP_EXCHANGE, value, ACQUIRE)
#define atomic_exchange_release(field, value) STEP_UPDATE(field, STEP_EXCHANGE, value, RELEASE)
#define atomic_exchange_acq_rel(field, value) \
    STEP_UPDATE(field, STEP_EXCHANGE, value, ACQUIRE | RELEASE)
#define atomic_or_release(field, value) STEP_UPDATE(field, STEP_OR, value, RELEASE)
#define atomic_or_acq_rel(field, value) STEP_UPDATE(field, STEP_OR, value, ACQUIRE | RELEASE)
#define atomic_add_relaxed(field, value) STEP_UPDATE(field, STEP_ADD, value, RELAXED)
#define atomic_add_release(field, value) STEP_UPDATE(field, STEP_ADD, value, RELEASE)
#define atomic_sub_relaxed(field, value) STEP_UPDATE(field, STEP_ADD, -(value), RELAXED)
#define STEP_CAS(field, expected, desired, order) \
    step_cas(STEP_FIELD(field), (expected), STEP_VALUE(field, desired), order)
#define atomic_cas_acquire(field, expected, desired) STEP_CAS(field, expected, desired, ACQUIRE)
#define atomic_cas_weak_release(field, expected, desired) \
    STEP_CAS(field, expected, desired, RELEASE)
