/* A ring of blocks from one thread to another. Positions are published once per batch and each
 * side keeps its own view of the other's, so that the ring is not what is measured. */
#pragma once

#include "frame.h"

#include <sched.h>
#include <stdatomic.h>

enum { RING_SLOTS = 4096, RING_BATCH = 64, RING_LOOKS_BEFORE_YIELD = 512 };

struct ring {
    /* Written by the sender with release, read by the receiver with acquire: slots below it hold
     * blocks. The sender's own view lies beside it. */
    _Alignas(128) _Atomic uint64_t sent;
    uint64_t filled, received_seen;
    /* Written by the receiver with release, read by the sender with acquire: slots below it are
     * free again. */
    _Alignas(128) _Atomic uint64_t received;
    uint64_t emptied, sent_seen;
    _Alignas(128) struct frame_slot slots[RING_SLOTS];
};

/* Lets the receiver see all that is filled. */
static inline void ring_publish(struct ring *ring) {
    atomic_store_explicit(&ring->sent, ring->filled, memory_order_release);
}

/* Lets the sender use again all that is emptied. */
static inline void ring_release(struct ring *ring) {
    atomic_store_explicit(&ring->received, ring->emptied, memory_order_release);
}

/* The sender's next slot, or NULL while the ring is full; what it holds is then published. */
static inline struct frame_slot *ring_free_slot(struct ring *ring) {
    if (ring->filled - ring->received_seen == RING_SLOTS) {
        ring_publish(ring);
        ring->received_seen = atomic_load_explicit(&ring->received, memory_order_acquire);
        if (ring->filled - ring->received_seen == RING_SLOTS) {
            return NULL;
        }
    }
    return &ring->slots[ring->filled % RING_SLOTS];
}

/* The slot that ring_free_slot() gave holds a block. */
static inline void ring_fill(struct ring *ring) {
    ring->filled++;
    if (ring->filled % RING_BATCH == 0) {
        ring_publish(ring);
    }
}

/* The receiver's next block, or NULL while there is none; all slots are then given back. */
static inline struct frame_slot *ring_full_slot(struct ring *ring) {
    if (ring->emptied == ring->sent_seen) {
        ring_release(ring);
        ring->sent_seen = atomic_load_explicit(&ring->sent, memory_order_acquire);
        if (ring->emptied == ring->sent_seen) {
            return NULL;
        }
    }
    return &ring->slots[ring->emptied % RING_SLOTS];
}

/* The block of the slot that ring_full_slot() gave is freed. */
static inline void ring_empty(struct ring *ring) {
    ring->emptied++;
    if (ring->emptied % RING_BATCH == 0) {
        ring_release(ring);
    }
}

/* Between two looks at something that another thread will change. */
static inline void ring_wait(unsigned *looks) {
    if (++*looks % RING_LOOKS_BEFORE_YIELD == 0) {
        sched_yield();
    } else {
        frame_relax();
    }
}
