#include "space/arena.h"

#include "base/bits.h"
#include "os/lock.h"
#include "os/os.h"
#include "space/arena_pages.h"
#include "space/arena_purge.h"
#include "space/best_fit.h"
#include "space/huge_pages.h"
#include "space/metadata.h"
#include "space/page_map.h"
#include "space/purge_pages.h"

// Superslabs of one longest stretch that are asked for an aligned place, under the arena's lock. More brings nothing
// (docs/decisions/0080).
#define SUPERSLABS_TRIED 4

// Where a run of that length may start: in memory that is still there if possible. 64 when nowhere.
static unsigned find_place(const struct superslab *superslab, unsigned page_count,
                           uint64_t allowed) {
    const unsigned place = best_fit(superslab_dirty(superslab), page_count, allowed);
    return place < SUPERSLAB_PAGES ? place : best_fit(superslab->free, page_count, allowed);
}

// The first of the superslabs whose longest stretch is that long which has a place for a run. Only an alignment can rule
// one out; the next ones are tried then, no more than SUPERSLABS_TRIED, since the arena's lock is held.
static struct superslab *first_with_place(unsigned length, unsigned page_count, uint64_t allowed,
                                          unsigned *place) {
    const struct list *all = &arena_state.by_length[length];
    unsigned tried = 0;
    for (struct list *link = all->next; link != all && tried < SUPERSLABS_TRIED;
         link = link->next, tried++) {
        struct superslab *superslab = CONTAINER_OF(link, struct superslab, length_link);
        *place = find_place(superslab, page_count, allowed);
        if (*place < SUPERSLAB_PAGES) {
            return superslab;
        }
    }
    return NULL;
}

// Best fit: the shortest longest stretch that is long enough, or a longer one where none of those has an aligned place.
static struct superslab *choose_superslab(unsigned page_count, uint64_t allowed, unsigned *place) {
    for (uint64_t lengths = arena_state.lengths & ~bit_range(0, page_count - 1); lengths != 0;
         lengths &= lengths - 1) {
        struct superslab *superslab =
            first_with_place(bit_lowest(lengths) + 1, page_count, allowed, place);
        if (superslab != NULL) {
            return superslab;
        }
    }
    *place = 0;
    return arena_map_superslab();
}

// A descriptor that no run has and that may move, taken away from its place; NULL when there is none.
static struct run *movable_descriptor(struct superslab *superslab) {
    if (superslab->movable == 0) {
        return NULL;
    }
    const unsigned place = bit_lowest(superslab->movable);
    struct run *run = superslab_run(superslab, place);
    superslab->movable &= ~bit(place);
    atomic_store_relaxed(&superslab->runs[place], NULL);
    return run;
}

// The descriptor of a run that starts at a place. NULL when the system has no memory for a new one.
static struct run *descriptor_at(struct superslab *superslab, unsigned place) {
    struct run *run = superslab_run(superslab, place);
    if (run == NULL) {
        run = movable_descriptor(superslab);
        if (run == NULL) {
            run = metadata_alloc(sizeof *run);
        }
        atomic_store_release(&superslab->runs[place], run);
    }
    superslab->movable &= ~bit(place);
    return run;
}

// Nothing but the owner's fields was ever used: a slab leaves its bitmap here.
static bool may_move(const struct run *run) {
    return run->remote_bits == NULL;
}

struct run *arena_take(unsigned page_count, size_t alignment, bool guard, uint64_t *used) {
    const uint64_t allowed = alignment <= PAGE_BYTES ? ALL_PAGES : aligned_pages(alignment);
    lock_acquire(&arena_state.lock);
    arena_prepare_lists();
    guard = guard && arena_state.guard_count < ARENA_GUARDS_MOST;
    const unsigned span = page_count + (guard ? 1 : 0);
    unsigned place;
    struct superslab *superslab = choose_superslab(span, allowed, &place);
    struct run *run = superslab == NULL ? NULL : descriptor_at(superslab, place);
    if (run == NULL) {
        lock_release(&arena_state.lock);
        return NULL;
    }
    const uint64_t new_pages = bit_count(superslab->zero & bit_range(place, span));
    const bool is_first = superslab_is_spare(superslab);
    if (unlikely(is_first)) {
        huge_pages_advise(superslab, &arena_state.all, arena_state.superslab_count);
    }
    const uint64_t span_used = arena_claim_pages(superslab, bit_range(place, span)) >> place;
    *used = span_used & bit_range(0, page_count);
    arena_count_used(span, new_pages);
    whole_store_release(&run->start, superslab->start + place * PAGE_BYTES);
    run->page_count = (uint8_t)page_count;
    run->guarded = guard;
    arena_state.guard_count += guard;
    atomic_bump_owned(&superslab->run_start, bit(place));
    lock_release(&arena_state.lock);
    if (unlikely(is_first)) {
        huge_pages_touch(superslab, (void *)run->start);
    }
    // A guard the system refuses leaves an ordinary unused page there: weaker, but not wrong.
    if (guard) {
        char *const behind = (char *)run->start + page_count * PAGE_BYTES;
        // What it held would stay in memory as long as it is a guard: no purge comes there.
        if ((span_used & bit(page_count)) != 0) {
            os_purge(behind, PAGE_BYTES);
        }
        os_guard(behind, PAGE_BYTES);
    }
    return run;
}

static struct superslab *superslab_of(const struct run *run) {
    return page_map_superslab(run->start);
}

struct run *arena_find(uintptr_t address) {
    struct superslab *superslab = page_map_superslab(address);
    if (superslab == NULL) {
        return NULL;
    }
    const unsigned page = (unsigned)((address >> PAGE_SHIFT) % SUPERSLAB_PAGES);
    const uint64_t starts = atomic_load_relaxed(&superslab->run_start) & bit_range(0, page + 1);
    return starts == 0 ? NULL : superslab_run(superslab, bit_highest(starts));
}

// Pages that were a run's are free. The lock is held, and released here.
static void release_and_unlock(struct superslab *superslab, uint64_t mask) {
    const uint64_t pages = bit_count(mask);
    arena_state.used_pages -= pages;
    arena_release_pages(superslab, mask);
    arena_purge_freed_and_unlock(pages * PAGE_BYTES);
}

void arena_give(struct run *run) {
    struct superslab *superslab = superslab_of(run);
    const unsigned place = run_place(run);
    const unsigned guard_place = place + run->page_count;
    const bool lifted = run->guarded && arena_lift_guard(superslab, guard_place);
    atomic_store_relaxed(&run->kind, RUN_FREE);
    lock_acquire(&arena_state.lock);
    atomic_bump_owned(&superslab->run_start, -bit(place));
    superslab->movable |= may_move(run) ? bit(place) : 0;
    arena_state.guard_count -= lifted;
    if (run->guarded && !lifted) {
        superslab->stuck |= bit(guard_place);
        arena_state.used_pages--;
    }
    release_and_unlock(superslab, bit_range(place, run->page_count + (lifted ? 1u : 0u)));
}

bool arena_extend(struct run *run, unsigned page_count) {
    struct superslab *superslab = superslab_of(run);
    const unsigned end = run_place(run) + run->page_count;
    const unsigned more = page_count - run->page_count;
    if (run->guarded || end + more > SUPERSLAB_PAGES) {
        return false;
    }
    const uint64_t mask = bit_range(end, more);
    lock_acquire(&arena_state.lock);
    const bool is_free = (superslab->free & mask) == mask;
    if (is_free) {
        const uint64_t new_pages = bit_count(superslab->zero & mask);
        arena_claim_pages(superslab, mask);
        arena_count_used(more, new_pages);
        run->page_count = (uint8_t)page_count;
    }
    lock_release(&arena_state.lock);
    return is_free;
}

void arena_shorten(struct run *run, unsigned page_count) {
    if (run->guarded) {
        return;
    }
    struct superslab *superslab = superslab_of(run);
    const unsigned place = run_place(run);
    lock_acquire(&arena_state.lock);
    const uint64_t mask = bit_range(place + page_count, run->page_count - page_count);
    run->page_count = (uint8_t)page_count;
    release_and_unlock(superslab, mask);
}

void arena_totals(struct arena_totals *totals) {
    *totals = (struct arena_totals){0};
    lock_acquire(&arena_state.lock);
    arena_prepare_lists();
    totals->mapped_bytes_max = arena_state.superslab_count_max * SUPERSLAB_BYTES;
    totals->mapped_bytes = arena_state.superslab_count * SUPERSLAB_BYTES;
    totals->free_bytes = totals->mapped_bytes - arena_state.used_pages * PAGE_BYTES;
    totals->dirty_bytes = arena_dirty_bytes();
    lock_release(&arena_state.lock);
}

uint64_t arena_mapped_bytes(void) {
    lock_acquire(&arena_state.lock);
    const uint64_t count = arena_state.superslab_count;
    lock_release(&arena_state.lock);
    return count * SUPERSLAB_BYTES;
}

void arena_fork_lock(void) {
    lock_acquire(&arena_state.lock);
}

void arena_fork_unlock(void) {
    lock_release(&arena_state.lock);
}

void arena_fork_child(void) {
    arena_prepare_lists();
    purge_fork_child();
    for (struct list *link = arena_state.all.next; link != &arena_state.all; link = link->next) {
        struct superslab *superslab = CONTAINER_OF(link, struct superslab, all_link);
        const uint64_t own = superslab->purging == 0 ? 0 : purge_own_pages(superslab);
        const uint64_t pages = superslab->purging & ~own;
        if (pages != 0) {
            superslab->purging = own;
            arena_release_pages(superslab, pages);
        }
    }
}
