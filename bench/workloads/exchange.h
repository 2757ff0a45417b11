/* A table of blocks that all threads share. A thread puts its new block into a slot and takes out
 * what was there: which thread allocated the block that it then frees is left to chance (as in
 * mimalloc-bench's mstress). Each slot has a lock of its own, held for two copies. */
#pragma once

#include "frame.h"

#include <stdatomic.h>

struct exchange_slot {
    struct frame_slot held;
    _Atomic uint32_t locked; /* acquire by who sets it, pairs with the release that clears it */
};

static inline void exchange_swap(struct exchange_slot *slot, struct frame_slot *own) {
    while (atomic_exchange_explicit(&slot->locked, 1, memory_order_acquire) != 0) {
        frame_relax();
    }
    const struct frame_slot held = slot->held;
    slot->held = *own;
    atomic_store_explicit(&slot->locked, 0, memory_order_release);
    *own = held;
}

/* Frees what the table still holds; returns its share of the checksum. */
static inline uint64_t exchange_drop_all(struct exchange_slot *slots, size_t count, bool check) {
    uint64_t checksum = 0;
    for (size_t i = 0; i < count; i++) {
        checksum += frame_drop_all(&slots[i].held, 1, check);
    }
    return checksum;
}
