#include "heap/guarded.h"

#include "base/bits.h"
#include "base/check.h"
#include "config/counters.h"
#include "config/options.h"
#include "os/lock.h"
#include "os/os.h"
#include "space/metadata.h"
#include "space/page_map.h"

// What lies beside a block. No byte that programs often write.
#define SLACK_BYTE 0xb6

#define NO_SLOT GUARDED_NO_SLOT

static struct guarded_pool pool = {
    .lock = LOCK_INITIAL(LOCK_RANK_GUARDED), .oldest = NO_SLOT, .newest = NO_SLOT};
INSPECTABLE(pool, guarded_pool_state);

static struct guarded_slot *slots_if_any(void) {
    return atomic_load_acquire(&pool.slots);
}

bool guarded_is_on(void) {
    return slots_if_any() != NULL;
}

// ---- Geometry

static uintptr_t page_of(uint32_t index) {
    return pool.base + (2 * (size_t)index + 1) * pool.page_bytes;
}

static bool contains(uintptr_t address) {
    return address - pool.base < pool.pool_bytes;
}

// The slot on whose page an address of the pool lies, NO_SLOT for a guard.
static uint32_t slot_at(uintptr_t address) {
    const size_t page = (address - pool.base) / pool.page_bytes;
    return page % 2 == 1 && page / 2 < pool.slot_count ? (uint32_t)(page / 2) : NO_SLOT;
}

// The pool's pages in the page map: all of them, or one that is not would pass for foreign.
static bool enter_page_map(uintptr_t base, size_t pool_bytes) {
    if (!page_map_cover(base, pool_bytes)) {
        return false;
    }
    page_map_set(base, pool_bytes >> PAGE_SHIFT, page_entry(0, PAGE_KIND_GUARDED));
    return true;
}

bool guarded_start(void) {
    if (options.guard_sample == 0 || guarded_is_on()) {
        return false;
    }
    const size_t page_bytes = os_page_bytes();
    const size_t pool_bytes = align_up((2 * options.guard_slots + 1) * page_bytes, PAGE_BYTES);
    void *base = os_reserve_aligned(pool_bytes, PAGE_BYTES);
    if (base == NULL) {
        return false;
    }
    struct guarded_slot *slots = metadata_alloc(options.guard_slots * sizeof *slots);
    if (slots == NULL || !enter_page_map((uintptr_t)base, pool_bytes)) {
        os_unmap(base, pool_bytes);
        return false;
    }
    pool.base = (uintptr_t)base;
    pool.page_bytes = page_bytes;
    pool.pool_bytes = pool_bytes;
    pool.slot_count = (uint32_t)options.guard_slots;
    pool.random_state = os_random() | 1;
    atomic_store_release(&pool.slots, slots);
    return true;
}

// ---- Sampling

// 1 .. 2N-1, N on average.
static uint64_t interval(struct guarded_sampler *sampler) {
    return 1 + random_next(&sampler->random_state) % (2 * options.guard_sample - 1);
}

bool guarded_is_due(struct guarded_sampler *sampler, uint64_t stands_for) {
    if (unlikely(sampler->random_state == 0)) {
        sampler->random_state = os_random() | 1;
        sampler->left = interval(sampler);
    }
    if (likely(sampler->left > stands_for)) {
        sampler->left -= stands_for;
        return false;
    }
    // A block that is guarded stands for itself alone: nothing was brought that serves those that follow.
    sampler->left += interval(sampler) - 1;
    return true;
}

void guarded_is_missed(struct guarded_sampler *sampler, uint64_t stands_for) {
    const uint64_t others = stands_for - 1;
    sampler->left = sampler->left > others ? sampler->left - others : 1;
}

// ---- The queue of free slots, the one freed first in front

static void push_freed(struct guarded_slot *slots, uint32_t index) {
    slots[index].next = NO_SLOT;
    if (pool.newest == NO_SLOT) {
        pool.oldest = index;
    } else {
        slots[pool.newest].next = index;
    }
    pool.newest = index;
    pool.freed_count++;
}

static uint32_t pop_freed(const struct guarded_slot *slots) {
    const uint32_t index = pool.oldest;
    pool.oldest = slots[index].next;
    if (pool.oldest == NO_SLOT) {
        pool.newest = NO_SLOT;
    }
    pool.freed_count--;
    return index;
}

// A slot that may be used, NO_SLOT when all are live.
static uint32_t take_slot(struct guarded_slot *slots) {
    // One that a fault opened stays what it is: the program still uses it.
    while (pool.fresh_index < pool.slot_count) {
        const uint32_t index = pool.fresh_index++;
        if (likely(!atomic_load_relaxed(&slots[index].opened))) {
            return index;
        }
    }
    while (pool.oldest != NO_SLOT) {
        const uint32_t index = pop_freed(slots);
        if (!atomic_load_relaxed(&slots[index].opened)) {
            return index;
        }
    }
    return NO_SLOT;
}

// The slot taken last was not used.
static void put_back(struct guarded_slot *slots, uint32_t index) {
    if (atomic_load_relaxed(&slots[index].state) == GUARDED_UNUSED) {
        pool.fresh_index = index;
    } else {
        push_freed(slots, index);
    }
}

// ---- Slack

static void fill(uintptr_t from, uintptr_t to) {
    __builtin_memset((void *)from, SLACK_BYTE, to - from);
}

static bool is_slack(uintptr_t address) {
    return *(const volatile unsigned char *)address == SLACK_BYTE;
}

// The changed byte nearest to the block, those behind it first; 0: none.
static uintptr_t find_damage(const struct guarded_slot *slot, uintptr_t page) {
    for (uintptr_t at = slot->start + slot->bytes; at < page + pool.page_bytes; at++) {
        if (!is_slack(at)) {
            return at;
        }
    }
    for (uintptr_t at = slot->start; at > page; at--) {
        if (!is_slack(at - 1)) {
            return at - 1;
        }
    }
    return 0;
}

// ---- Blocks

static uintptr_t choose_place(uintptr_t page, size_t bytes) {
    const bool at_right_end = (random_next(&pool.random_state) >> 63) != 0;
    return at_right_end ? page + pool.page_bytes - align_up(bytes, BLOCK_ALIGN) : page;
}

// The lock is held.
static void *occupy(struct guarded_slot *slots, uint32_t index, size_t bytes,
                    const struct stack *stack) {
    const uintptr_t page = page_of(index);
    struct guarded_slot *slot = &slots[index];
    if (!os_commit((void *)page, pool.page_bytes)) {
        put_back(slots, index);
        return NULL;
    }
    slot->start = choose_place(page, bytes);
    slot->bytes = bytes;
    slot->allocated = *stack;
    slot->freed.thread = 0;
    slot->freed.count = 0;
    fill(page, slot->start);
    fill(slot->start + bytes, page + pool.page_bytes);
    atomic_store_relaxed(&slot->state, GUARDED_LIVE);
    pool.live_count++;
    pool.live_bytes += bytes;
    return (void *)slot->start;
}

void *guarded_alloc(size_t bytes, uint32_t thread) {
    struct guarded_slot *slots = slots_if_any();
    if (slots == NULL) {
        return NULL;
    }
    if (bytes > pool.page_bytes) {
        count_event(COUNTER_guarded_full, 1);
        return NULL;
    }
    struct stack stack;
    os_stack_capture_of(&stack, thread);
    lock_acquire(&pool.lock);
    const uint32_t index = take_slot(slots);
    void *block = index == NO_SLOT ? NULL : occupy(slots, index, bytes == 0 ? 1 : bytes, &stack);
    lock_release(&pool.lock);
    count_event(block == NULL ? COUNTER_guarded_full : COUNTER_guarded_allocs, 1);
    return block;
}

static struct guarded_slot *live_slot(uintptr_t address) {
    struct guarded_slot *slots = slots_if_any();
    if (slots == NULL || !contains(address) || slot_at(address) == NO_SLOT) {
        return NULL;
    }
    struct guarded_slot *slot = &slots[slot_at(address)];
    return slot->start == address && atomic_load_relaxed(&slot->state) == GUARDED_LIVE ? slot
                                                                                       : NULL;
}

size_t guarded_block_bytes(uintptr_t address) {
    const struct guarded_slot *slot = live_slot(address);
    return slot == NULL ? 0 : slot->bytes;
}

// The lock is held. Memory goes back to the system, and with it what the block held.
static void vacate(struct guarded_slot *slot, uint32_t index) {
    void *page = (void *)page_of(index);
    atomic_store_relaxed(&slot->state, GUARDED_FREED);
    pool.live_count--;
    pool.live_bytes -= slot->bytes;
    if (!os_purge(page, pool.page_bytes) && options.zero_on_free) {
        __builtin_memset(page, 0, pool.page_bytes);
    }
    // A guard that the system refuses leaves the page accessible: weaker, but not wrong.
    os_guard(page, pool.page_bytes);
    push_freed(slots_if_any(), index);
}

bool guarded_free(uintptr_t address, uint32_t thread, uintptr_t *damage) {
    struct stack stack;
    os_stack_capture_of(&stack, thread);
    *damage = 0;
    lock_acquire(&pool.lock);
    struct guarded_slot *slot = live_slot(address);
    if (slot != NULL) {
        const uint32_t index = slot_at(address);
        slot->freed = stack;
        *damage = find_damage(slot, page_of(index));
        vacate(slot, index);
    }
    lock_release(&pool.lock);
    if (slot != NULL) {
        count_event(COUNTER_guarded_frees, 1);
    }
    return slot != NULL;
}

// ---- Looking at the pool

// Bytes between an address and the block of a slot; 0 within it.
static size_t distance(const struct guarded_slot *slot, uintptr_t address) {
    if (address < slot->start) {
        return slot->start - address;
    }
    const uintptr_t end = slot->start + slot->bytes;
    return address < end ? 0 : address - end + 1;
}

static const struct guarded_slot *used_slot(const struct guarded_slot *slots, size_t index) {
    return index < pool.slot_count &&
                   atomic_load_relaxed(&((struct guarded_slot *)(uintptr_t)&slots[index])->state) !=
                       GUARDED_UNUSED
               ? &slots[index]
               : NULL;
}

bool guarded_contains(uintptr_t address) {
    return guarded_is_on() && contains(address);
}

const struct guarded_slot *guarded_nearest(uintptr_t address) {
    const struct guarded_slot *slots = slots_if_any();
    if (!guarded_contains(address)) {
        return NULL;
    }
    const size_t page = (address - pool.base) / pool.page_bytes;
    if (page % 2 == 1) {
        return used_slot(slots, page / 2);
    }
    // A guard: the slot before it, or the one behind.
    const struct guarded_slot *before = page == 0 ? NULL : used_slot(slots, page / 2 - 1);
    const struct guarded_slot *behind = used_slot(slots, page / 2);
    if (before == NULL || behind == NULL) {
        return before == NULL ? behind : before;
    }
    return distance(before, address) <= distance(behind, address) ? before : behind;
}

bool guarded_open(uintptr_t address) {
    struct guarded_slot *slots = slots_if_any();
    if (!guarded_contains(address)) {
        return false;
    }
    const uint32_t index = slot_at(address);
    if (index != NO_SLOT) {
        atomic_store_relaxed(&slots[index].opened, true);
    }
    return os_commit((void *)align_down(address, pool.page_bytes), pool.page_bytes);
}

void guarded_visit(void (*visit)(const struct guarded_slot *slot, void *context), void *context) {
    const struct guarded_slot *slots = slots_if_any();
    if (slots == NULL) {
        return;
    }
    lock_acquire(&pool.lock);
    for (uint32_t i = 0; i < pool.fresh_index; i++) {
        const struct guarded_slot *slot = used_slot(slots, i);
        if (live_slot(slot == NULL ? 0 : slot->start) != NULL) {
            visit(slot, context);
        }
    }
    lock_release(&pool.lock);
}

void guarded_totals(struct guarded_totals *totals) {
    lock_acquire(&pool.lock);
    totals->live_count = pool.live_count;
    totals->live_bytes = pool.live_bytes;
    totals->pool_bytes = guarded_is_on() ? pool.pool_bytes : 0;
    lock_release(&pool.lock);
}

static void check_slot(struct check *check, const struct guarded_slot *slot, uint32_t index,
                       struct guarded_totals *found) {
    const uintptr_t page = page_of(index);
    const uint32_t state = atomic_load_relaxed(&((struct guarded_slot *)(uintptr_t)slot)->state);
    check->structure = "guarded slot";
    check->where = index;
    const size_t before = check->violations;
    const bool opened = atomic_load_relaxed(&((struct guarded_slot *)(uintptr_t)slot)->opened);
    check_that(check,
               (state == GUARDED_UNUSED) == (index >= pool.fresh_index) ||
                   (opened && state == GUARDED_UNUSED),
               "unused from fresh_index on, and opened ones alone before", state, pool.fresh_index);
    check_that(check, state <= GUARDED_FREED, "state <= freed", state, GUARDED_FREED);
    if (state != GUARDED_LIVE) {
        return;
    }
    check_that(check, slot->start >= page, "start >= its page", slot->start, page);
    check_that(check, slot->start + slot->bytes <= page + pool.page_bytes, "end <= its page's end",
               slot->start + slot->bytes, page + pool.page_bytes);
    if (check->violations == before) {
        found->live_count++;
        found->live_bytes += slot->bytes;
        check_equal(check, "nothing is written beside the block", find_damage(slot, page), 0);
    }
}

static uint32_t queue_length(const struct guarded_slot *slots) {
    uint32_t count = 0;
    for (uint32_t i = pool.oldest; i != NO_SLOT && count <= pool.slot_count; i = slots[i].next) {
        count++;
    }
    return count;
}

size_t guarded_check(void) {
    const struct guarded_slot *slots = slots_if_any();
    struct check check = {"guarded pool", 0, 0};
    struct guarded_totals found = {0};
    if (slots == NULL) {
        return 0;
    }
    lock_acquire(&pool.lock);
    for (uint32_t i = 0; i < pool.slot_count; i++) {
        check_slot(&check, &slots[i], i, &found);
    }
    check.structure = "guarded pool";
    check.where = pool.base;
    check_equal(&check, "live_count == live slots", pool.live_count, found.live_count);
    check_equal(&check, "live_bytes == bytes of live slots", pool.live_bytes, found.live_bytes);
    check_equal(&check, "freed_count == length of the queue", pool.freed_count,
                queue_length(slots));
    for (uintptr_t page = pool.base; contains(page); page += PAGE_BYTES) {
        check_equal(&check, "each page's entry is a guarded one", page_map_get(page),
                    page_entry(0, PAGE_KIND_GUARDED));
    }
    lock_release(&pool.lock);
    return check.violations;
}

void guarded_fork_lock(void) {
    lock_acquire(&pool.lock);
}

void guarded_fork_unlock(void) {
    lock_release(&pool.lock);
}
