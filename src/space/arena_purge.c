#include "space/arena_purge.h"

#include "base/bits.h"
#include "config/counters.h"
#include "config/options.h"
#include "os/events.h"
#include "os/lock.h"
#include "os/os.h"
#include "space/arena_pages.h"
#include "space/huge_pages.h"
#include "space/page_map.h"
#include "space/purge_pages.h"

// Wholly free and clean superslabs kept mapped, so that a program that hovers at the border of one
// does not map and unmap.
#define SPARE_SUPERSLABS 1
uint64_t arena_purge_due(void) {
    return atomic_load_relaxed(&arena_state.purge_due_ms);
}

// A thread's clock may be older than that of the one that set the time, which is no sign of a delay made shorter.
bool arena_purge_is_due(uint64_t now_ms) {
    const uint64_t due_ms = arena_purge_due();
    return now_ms >= due_ms || (due_ms != UINT64_MAX &&
                                due_ms - now_ms > option_live(purge_delay_ms) + OS_CLOCKS_APART_MS);
}

// Tries again to make stuck pages accessible. They hold what they held before they became guards.
static void free_stuck(struct superslab *superslab) {
    const bool was_spare = superslab_is_spare(superslab);
    for (uint64_t rest = superslab->stuck; rest != 0; rest &= rest - 1) {
        const unsigned place = bit_lowest(rest);
        if (!arena_lift_guard(superslab, place)) {
            break;
        }
        superslab->stuck &= ~bit(place);
        arena_state.guard_count--;
        superslab->free |= bit(place);
        superslab->dirty_young |= bit(place);
        arena_count_dirty(1);
    }
    arena_refile(superslab);
    if (was_spare && !superslab_is_spare(superslab)) {
        arena_state.spare_count--;
    }
}

// What a round takes.
enum purge_scope {
    PURGE_EARLY,  // what has aged, but for superslabs that huge pages may back
    PURGE_AGED,
    PURGE_ANY_AGE,
};

// Ages the superslab's dirty pages and purges those that are due. The lock is released around the
// system calls: meanwhile the pages are nobody's, neither free nor in a run.
static size_t purge_superslab(struct superslab *superslab, enum purge_scope scope,
                              uint64_t *refused_pages) {
    if (scope == PURGE_EARLY && huge_pages_may_back((void *)superslab->start)) {
        return 0;
    }
    uint64_t due = superslab->dirty_old;
    free_stuck(superslab);
    if (scope == PURGE_ANY_AGE) {
        due |= superslab->dirty_young;
    }
    superslab->dirty_old = superslab->dirty_young & ~due;
    superslab->dirty_young = 0;
    if (due == 0) {
        return 0;
    }
    arena_count_dirty(-(uint64_t)bit_count(due));
    arena_claim_pages(superslab, due);
    superslab->purging |= due;
    struct purge *purge = purge_begin(superslab, due);
    // The child of a signal handler's fork would take the pages of one that is not noted, and this call would go on giving them back.
    // Under the lock there is no such child: that fork waits for its own thread, as amid any other change of the arena.
    const bool is_noted = likely(purge != NULL);
    if (is_noted) {
        lock_release(&arena_state.lock);
    }
    const uint64_t purged = purge_pages(superslab, due);
    if (is_noted) {
        lock_acquire(&arena_state.lock);
    }
    purge_end(purge);
    superslab->purging &= ~due;
    superslab->free |= due;
    superslab->zero |= purged;
    superslab->dirty_young |= due & ~purged;
    arena_count_dirty(bit_count(due & ~purged));
    *refused_pages = bit_count(due & ~purged);
    if (unlikely(*refused_pages != 0)) {
        arena_note_dirty();
    }
    arena_refile(superslab);
    if (superslab_is_spare(superslab)) {
        arena_state.spare_count++;
    }
    return bit_count(purged) * PAGE_BYTES;
}

// Unmaps the wholly free and clean superslabs beyond the few that are kept; those with stuck pages
// too, whose guards end with them. One that the system refuses to unmap is tried again in the next
// round.
static void unmap_spares(void) {
    struct list *link = arena_state.all.next;
    while (link != &arena_state.all && arena_state.spare_count > SPARE_SUPERSLABS) {
        struct superslab *superslab = CONTAINER_OF(link, struct superslab, all_link);
        link = link->next;
        if (superslab_is_spare(superslab) && !arena_unmap_superslab(superslab)) {
            break;
        }
    }
}

// A superslab that is wholly free, and that the system refused to clear, since it is locked in memory: it may take it as a
// whole. Returns the bytes that are gone.
SLOW_PATH static size_t unmap_refused(struct superslab *superslab) {
    const size_t bytes = bit_count(superslab_dirty(superslab)) * PAGE_BYTES;
    return arena_unmap_superslab(superslab) ? bytes : 0;
}

// A round over the dirty superslabs, or the part of it that one call does.
struct round {
    uint64_t number;
    enum purge_scope scope;
    uint64_t rest_pages;  // it is over when so many are left
    size_t most_bytes;  // what this call gives back, a superslab's more at most; or ARENA_PURGE_ALL
    bool has_visited_all, is_over;
    uint64_t refused_pages;  // what the system did not take back, and is still there
    size_t bytes;            // given back
};

// A visit takes as long as giving so much back.
#define VISIT_BYTES (8 * KIB)

// The lock is held.
static void go_round(struct round *round) {
    unsigned refused_count = 0;  // wholly free superslabs that were refused, and stay
    size_t visits_bytes = 0;
    // Several threads may be here, each in a round of its own: a visited superslab goes to the back of the list. All were
    // visited when that is so by it or a later one that does as much, as seen without giving up the lock.
    const struct superslab *first_done = NULL;
    for (;;) {
        struct superslab *superslab =
            CONTAINER_OF(arena_state.dirty.next, struct superslab, dirty_link);
        round->has_visited_all = list_is_empty(&arena_state.dirty) || superslab == first_done;
        round->is_over = round->has_visited_all ||
                         (round->rest_pages != 0 && arena_dirty_pages() <= round->rest_pages);
        if (round->is_over) {
            break;
        }
        uint64_t *last =
            round->scope == PURGE_ANY_AGE ? &superslab->purge_round_full : &superslab->purge_round;
        const bool is_done = *last >= round->number;
        if (!is_done && round->bytes + visits_bytes >= round->most_bytes) {
            break;
        }
        list_remove(&superslab->dirty_link);
        list_push_back(&arena_state.dirty, &superslab->dirty_link);
        if (is_done) {
            first_done = first_done == NULL ? superslab : first_done;
            continue;
        }
        *last = round->number;
        first_done = NULL;
        visits_bytes += VISIT_BYTES;
        uint64_t refused_here = 0;
        round->bytes += purge_superslab(superslab, round->scope, &refused_here);
        // One at a time, so that nobody waits for all of them: unmapping is done under the lock.
        if (superslab_is_spare(superslab) && arena_state.spare_count > SPARE_SUPERSLABS) {
            arena_unmap_superslab(superslab);
        } else if (unlikely(refused_here != 0) && superslab_is_wholly_free(superslab) &&
                   arena_state.spare_count + refused_count++ >= SPARE_SUPERSLABS) {
            const size_t gone_bytes = unmap_refused(superslab);
            round->bytes += gone_bytes;
            refused_here = gone_bytes != 0 ? 0 : refused_here;
        }
        round->refused_pages += refused_here;
    }
    unmap_spares();
}

// A round by the clock is due, or what is left of one. It is not due for others until the delay is over. The lock is held.
static size_t purge_by_clock(uint64_t now_ms, size_t most_bytes) {
    if (arena_state.open_round == 0) {
        const enum runs_round kind = runs_delay_begin(&arena_state.delay, now_ms);
        if (kind == RUNS_ROUND_NONE) {
            return 0;
        }
        arena_state.open_round = ++arena_state.purge_round;
        arena_state.open_scope = kind == RUNS_ROUND_EARLY ? PURGE_EARLY : PURGE_AGED;
        if (kind == RUNS_ROUND_FULL) {
            excess_decay(&arena_state.excess);
        }
    }
    atomic_store_relaxed(&arena_state.purge_due_ms, now_ms + runs_delay_ms(&arena_state.delay));
    struct round round = {.number = arena_state.open_round,
                          .scope = (enum purge_scope)arena_state.open_scope,
                          .most_bytes = most_bytes};
    go_round(&round);
    if (round.scope == PURGE_EARLY) {
        runs_delay_purged(&arena_state.delay, round.bytes);
    }
    if (round.is_over && arena_state.open_round == round.number) {
        arena_state.open_round = 0;
        runs_delay_end(&arena_state.delay, round.scope == PURGE_EARLY, now_ms);
    }
    return round.bytes;
}

// The lock is held.
static size_t purge_everything(void) {
    arena_state.open_round = 0;
    struct round round = {
        .number = ++arena_state.purge_round, .scope = PURGE_ANY_AGE, .most_bytes = ARENA_PURGE_ALL};
    go_round(&round);
    return round.bytes;
}

static void count_purged(size_t bytes, bool whatever_age) {
    if (bytes != 0) {
        count_event(COUNTER_purged_bytes, bytes);
        event_record(EVENT_purge, bytes, whatever_age);
    }
}

size_t arena_purge(uint64_t now_ms, size_t most_bytes) {
    const bool everything = most_bytes == ARENA_PURGE_ALL;
    lock_acquire(&arena_state.lock);
    arena_prepare_lists();
    if (!everything && !arena_purge_is_due(now_ms)) {
        lock_release(&arena_state.lock);
        return 0;
    }
    const size_t bytes = everything ? purge_everything() : purge_by_clock(now_ms, most_bytes);
    // Of a round that is not over the next tick does more.
    const uint64_t next_ms =
        arena_state.open_round != 0 ? now_ms : now_ms + runs_delay_ms(&arena_state.delay);
    atomic_store_relaxed(&arena_state.purge_due_ms,
                         list_is_empty(&arena_state.dirty) ? UINT64_MAX : next_ms);
    lock_release(&arena_state.lock);
    count_purged(bytes, everything);
    return bytes;
}

// Purges whatever is dirty until `rest_bytes` of it are left, of which `bound_bytes` may stay. The lock is held. The system
// refuses to take back what is locked in memory: so much stays then, and is not looked for again at every call. What others
// freed meanwhile is for their own purges.
static size_t purge_down_to(uint64_t rest_bytes, uint64_t bound_bytes) {
    struct round round = {.number = ++arena_state.purge_round,
                          .scope = PURGE_ANY_AGE,
                          .rest_pages = rest_bytes >> PAGE_SHIFT,
                          .most_bytes = ARENA_PURGE_ALL};
    go_round(&round);
    if (unlikely(round.refused_pages != 0 && round.has_visited_all &&
                 arena_dirty_bytes() > bound_bytes)) {
        excess_accept(&arena_state.excess, round.refused_pages * PAGE_BYTES);
    }
    return round.bytes;
}

// Purges so much of what is dirty, or what there is. The lock is held.
static size_t purge_some(uint64_t bytes) {
    const uint64_t rest_bytes = arena_dirty_bytes() - least_u64(bytes, arena_dirty_bytes());
    return excess_is_over(&arena_state.excess, arena_dirty_bytes(), rest_bytes)
               ? purge_down_to(rest_bytes, rest_bytes)
               : 0;
}

void arena_make_room(void) {
    lock_acquire(&arena_state.lock);
    arena_prepare_lists();
    const uint64_t pages = arena_sum_pages();
    size_t purged_bytes = 0;
    if (pages > arena_state.sum_peak_pages) {
        purged_bytes = purge_some((pages - arena_state.sum_peak_pages) * PAGE_BYTES);
        arena_note_sum();
    }
    if (purged_bytes != 0) {
        const uint64_t now_ms = os_clock_ms_locked();
        arena_forget_old_room(now_ms);
        arena_state.room_pages += purged_bytes >> PAGE_SHIFT;
        arena_state.room_ms = now_ms;
    }
    lock_release(&arena_state.lock);
    count_purged(purged_bytes, true);
}

void arena_purge_small(uint64_t most_bytes) {
    if (arena_dirty_bytes() <= most_bytes) {
        lock_acquire(&arena_state.lock);
        arena_prepare_lists();
        const size_t purged_bytes = purge_some(most_bytes);
        lock_release(&arena_state.lock);
        count_purged(purged_bytes, true);
    }
}

// What one call purges where too much is dirty; or twice as much as it freed, where that is more.
#define CALL_EXCESS_BYTES MIB

static void purge_excess(uint64_t bound_bytes, uint64_t freed_bytes) {
    lock_acquire(&arena_state.lock);
    const uint64_t now_bytes = arena_dirty_bytes();
    // Where that is more than one call does, the next free goes on.
    const uint64_t part_bytes = greatest_u64(CALL_EXCESS_BYTES, 2 * freed_bytes);
    const uint64_t rest_bytes =
        greatest_u64(excess_rest(bound_bytes), now_bytes - least_u64(now_bytes, part_bytes));
    const size_t bytes = purge_down_to(rest_bytes, bound_bytes);
    if (bytes != 0) {
        excess_dropped(&arena_state.excess, bytes, bound_bytes);
    }
    lock_release(&arena_state.lock);
    count_purged(bytes, true);
}

// Nothing may stay: purge_delay_ms is 0.
static void purge_at_once(void) {
    size_t bytes = 0;
    lock_acquire(&arena_state.lock);
    if (excess_is_over(&arena_state.excess, arena_dirty_bytes(), 0)) {
        bytes = purge_down_to(0, 0);
        if (list_is_empty(&arena_state.dirty)) {
            atomic_store_relaxed(&arena_state.purge_due_ms, UINT64_MAX);
        }
    }
    lock_release(&arena_state.lock);
    count_purged(bytes, true);
}

// Purges when more is dirty than may stay, of which `freed_bytes` are new; returns whether so much was. The lock is held, and
// released here.
static bool trim_and_unlock(uint64_t least_bytes, uint64_t freed_bytes) {
    const uint64_t bound_bytes =
        excess_bound(&arena_state.excess, arena_state.used_pages * PAGE_BYTES, least_bytes);
    const bool is_over = excess_is_over(&arena_state.excess, arena_dirty_bytes(), bound_bytes);
    lock_release(&arena_state.lock);
    if (is_over) {
        purge_excess(bound_bytes, freed_bytes);
    }
    return is_over;
}

void arena_purge_freed_and_unlock(uint64_t freed_bytes) {
    if (!trim_and_unlock(option_live(excess_bytes), freed_bytes) &&
        unlikely(option_live(purge_delay_ms) == 0)) {
        purge_at_once();
    }
}

void arena_trim(uint64_t least_bytes) {
    if (arena_dirty_bytes() > least_bytes) {
        lock_acquire(&arena_state.lock);
        trim_and_unlock(least_bytes, 0);
    }
}
