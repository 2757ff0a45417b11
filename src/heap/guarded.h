// Guarded blocks: a few allocations, chosen at random, live alone between inaccessible pages, so that an
// overflow or a use after free ends in a fault whose report has the stacks of both ends of the block's
// life. In the spirit of GWP-ASan (Serebryany et al., 2023), off unless the option guard_sample says so.
//
//    guard      slot 0         guard      slot 1         guard  ...
//  +---------+--------------+---------+--------------+---------+
//  | no      | slack | block| no      | block| slack | no      |    one machine page each
//  | access  |       |      | access  |      |       | access  |
//  +---------+--------------+---------+--------------+---------+
//
// A block lies at either end of its page, at random; the rest of the page holds a pattern that is looked
// at when the block is freed. A free slot is inaccessible, and the one freed first is used next. All
// pages of the pool carry PAGE_KIND_GUARDED in the page map.
//
// The pool's lock is held around each change of a slot. The fault handler reads slots without it.
#pragma once

#include "base/atomic.h"
#include "base/base.h"
#include "os/lock.h"
#include "os/stack.h"

enum guarded_state { GUARDED_UNUSED, GUARDED_LIVE, GUARDED_FREED };

struct guarded_slot {
    uintptr_t start;  // of the block
    size_t bytes;     // of the request, at least 1
    // Relaxed: written under the pool's lock, read by the fault handler, to which a stale value is as good
    // as any; pairs with nothing.
    _Atomic(uint8_t) state;
    // Relaxed: set by the fault handler when it opened the page for a program that goes on, and never
    // reset: the slot is not used again. Pairs with nothing.
    _Atomic(bool) opened;
    uint32_t next;  // the slot freed after this one
    struct stack allocated, freed;
};

#define GUARDED_NO_SLOT UINT32_MAX

// All guarded blocks. Changed in guarded.c alone; snapshots look at its lock.
struct guarded_pool {
    struct lock lock;
    uintptr_t base;  // the first guard
    size_t page_bytes, pool_bytes;
    uint32_t slot_count;
    uint32_t fresh_index;     // slots from here on were never used
    uint32_t oldest, newest;  // freed slots, linked through `next`; GUARDED_NO_SLOT: none
    uint32_t freed_count;     // their number
    uint64_t live_count, live_bytes;
    uint64_t random_state;
    // Release when the pool is ready, acquire by whoever uses it. NULL: sampling is off.
    _Atomic(struct guarded_slot *) slots;
};
HIDDEN extern struct guarded_pool guarded_pool_state;  // for control/inspect.c

// Chooses allocations: one per thread. Starts as zero.
struct guarded_sampler {
    uint64_t left;  // allocations until the next sample
    uint64_t random_state;
};

// Makes the pool when the option wants it. Once, after the options are loaded. False when there is no
// pool: not wanted, or no memory for it.
bool guarded_start(void);

// Whether there is a pool.
bool guarded_is_on(void);

// Whether the next allocation is to be guarded. `stands_for`: allocations since the last call, this one
// included; one that is guarded stands for itself alone. On average one allocation in option guard_sample is.
bool guarded_is_due(struct guarded_sampler *sampler, uint64_t stands_for);

// The one that was due could not be guarded: it stands for as many after all.
void guarded_is_missed(struct guarded_sampler *sampler, uint64_t stands_for);

// NULL when the request is larger than a page or no slot is free. Aligned to BLOCK_ALIGN, and to the
// largest power of two up to a page that divides `bytes`. `thread` is the caller's os_thread_id().
void *guarded_alloc(size_t bytes, uint32_t thread);

// Bytes of the live guarded block that starts at an address; 0 when none does.
size_t guarded_block_bytes(uintptr_t address);

// False when no live block starts there (any more). *damage: the address of the changed byte next to the block; 0: none was changed.
bool guarded_free(uintptr_t address, uint32_t thread, uintptr_t *damage);

// Whether an address lies in the pool.
bool guarded_contains(uintptr_t address);

// The slot whose block an address of the pool is nearest to; NULL for any other address, and where no block
// was yet.
const struct guarded_slot *guarded_nearest(uintptr_t address);

// For a program that goes on after a fault: makes the machine's page at an address of the pool accessible.
// The slot, if it is one, is not used again.
bool guarded_open(uintptr_t address);

// Calls visit(slot, context) for every live block, under the pool's lock.
void guarded_visit(void (*visit)(const struct guarded_slot *slot, void *context), void *context);

struct guarded_totals {
    uint64_t live_count, live_bytes, pool_bytes;
};
void guarded_totals(struct guarded_totals *totals);

// Number of violated invariants.
size_t guarded_check(void);

void guarded_fork_lock(void);
void guarded_fork_unlock(void);
