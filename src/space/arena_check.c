// The arena's invariants (see space/arena_pages.h).
#include "base/bits.h"
#include "base/check.h"
#include "os/lock.h"
#include "space/arena.h"
#include "space/arena_pages.h"
#include "space/page_map.h"

// The runs of a superslab, stuck pages included: bit i is set when page i is in one.
static uint64_t check_runs(struct check *check, const struct superslab *superslab,
                           uint64_t *guards) {
    uint64_t covered = superslab->stuck;
    for (uint64_t rest = atomic_load_relaxed(&superslab->run_start); rest != 0; rest &= rest - 1) {
        const unsigned place = bit_lowest(rest);
        const struct run *run = superslab_run(superslab, place);
        check_that(check, run != NULL, "a run has a descriptor", place, 0);
        if (run == NULL) {
            continue;
        }
        const unsigned span = run->page_count + (run->guarded ? 1u : 0u);
        const bool fits = span != 0 && place + span <= SUPERSLAB_PAGES;
        check_that(check, fits, "a run lies within the superslab", place, span);
        if (!fits) {
            continue;
        }
        const uint64_t mask = bit_range(place, span);
        check_equal(check, "runs do not overlap", covered & mask, 0);
        check_equal(check, "no page of a run is free", superslab->free & mask, 0);
        check_equal(check, "a run starts where its place is", run->start,
                    superslab->start + place * PAGE_BYTES);
        covered |= mask;
        *guards += run->guarded;
    }
    return covered;
}

// Entries are taken away before pages are free, and set after they were taken: a free page has none.
static void check_entries(struct check *check, const struct superslab *superslab) {
    check_equal(check, "its address leads to it", (uintptr_t)page_map_superslab(superslab->start),
                (uintptr_t)superslab);
    for (uint64_t rest = superslab->free; rest != 0; rest &= rest - 1) {
        const uintptr_t page = superslab->start + bit_lowest(rest) * PAGE_BYTES;
        check_equal(check, "a free page has no entry", page_map_get(page), PAGE_ENTRY_NONE);
    }
}

static size_t check_superslab(const struct superslab *superslab, uint64_t *guards) {
    struct check check = {"superslab", superslab->start, 0};
    const uint64_t starts = atomic_load_relaxed(&superslab->run_start);
    const uint64_t dirty = superslab_dirty(superslab);
    check_equal(&check, "run_start and free are disjoint", starts & superslab->free, 0);
    check_equal(&check, "dirty_young and dirty_old are disjoint",
                superslab->dirty_young & superslab->dirty_old, 0);
    check_equal(&check, "dirty and zero are disjoint", dirty & superslab->zero, 0);
    check_equal(&check, "dirty and zero together are free", dirty | superslab->zero,
                superslab->free);
    check_equal(&check, "stuck pages are neither free nor in a run",
                superslab->stuck & (superslab->free | starts), 0);
    check_equal(&check, "no run has a descriptor that may move", superslab->movable & starts, 0);
    check_equal(&check, "longest == longest stretch of free", superslab->longest,
                bit_longest_stretch(superslab->free));
    check_that(&check, (superslab->longest == 0) == list_is_empty(&superslab->length_link),
               "on a list of lengths exactly when a page is free", superslab->longest,
               superslab->free);
    check_that(&check, ((dirty | superslab->stuck) == 0) == list_is_empty(&superslab->dirty_link),
               "on the dirty list exactly when a page is dirty or stuck", dirty, superslab->stuck);
    const uint64_t covered = check_runs(&check, superslab, guards);
    check_equal(&check, "pages being purged are in no run", covered & superslab->purging, 0);
    check_equal(&check, "each page is in a run, free, stuck or being purged",
                covered | superslab->free | superslab->purging, ALL_PAGES);
    check_entries(&check, superslab);
    return check.violations;
}

size_t arena_check(void) {
    struct check check = {"arena", 0, 0};
    size_t violations = 0;
    uint64_t count = 0;
    uint64_t spare_count = 0;
    uint64_t dirty = 0;
    uint64_t used = 0;
    uint64_t guards = 0;
    lock_acquire(&arena_state.lock);
    if (!arena_state.ready) {
        lock_release(&arena_state.lock);
        return 0;
    }
    for (struct list *link = arena_state.all.next; link != &arena_state.all; link = link->next) {
        const struct superslab *superslab = CONTAINER_OF(link, struct superslab, all_link);
        violations += check_superslab(superslab, &guards);
        guards += bit_count(superslab->stuck);
        count++;
        spare_count += superslab_is_spare(superslab);
        dirty += bit_count(superslab_dirty(superslab));
        used += bit_count(~(superslab->free | superslab->stuck | superslab->purging));
    }
    for (unsigned length = 1; length <= SUPERSLAB_PAGES; length++) {
        const bool listed = (arena_state.lengths & bit(length - 1)) != 0;
        check_that(&check, listed != list_is_empty(&arena_state.by_length[length]),
                   "lengths tells the lists that are not empty", arena_state.lengths, length);
    }
    check_equal(&check, "superslab_count == superslabs on the list", arena_state.superslab_count,
                count);
    check_equal(&check, "spare_count == superslabs free and clean", arena_state.spare_count,
                spare_count);
    // Sums tell something of sound superslabs alone.
    if (violations + check.violations == 0) {
        check_equal(&check, "dirty_pages == dirty pages of all",
                    atomic_load_relaxed(&arena_state.dirty_pages), dirty);
        check_equal(&check, "guard_count == guards of all, and stuck ones", arena_state.guard_count,
                    guards);
        check_equal(&check, "used_pages == pages of all in runs", arena_state.used_pages, used);
    }
    lock_release(&arena_state.lock);
    return violations + check.violations;
}
