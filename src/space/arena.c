#include "space/arena.h"

#include "base/bits.h"
#include "config/counters.h"
#include "config/options.h"
#include "os/events.h"
#include "os/lock.h"
#include "os/os.h"
#include "space/best_fit.h"
#include "space/huge_pages.h"
#include "space/metadata.h"
#include "space/page_map.h"
#include "space/purge_pages.h"

// Wholly free and clean superslabs kept mapped, so that a program that hovers at the border of one
// does not map and unmap.
#define SPARE_SUPERSLABS 1
// Superslabs of one longest stretch that are asked for an aligned place, under the arena's lock. More brings nothing
// (docs/decisions/0080).
#define SUPERSLABS_TRIED 4

// In the section of the root for readers outside of the process (control/inspect.c).
static struct arena arena __attribute__((section(".data"))) = {
    .lock = LOCK_INITIAL(LOCK_RANK_ARENA), .purge_due_ms = UINT64_MAX};
INSPECTABLE(arena, arena_state);

static void prepare_lists(void) {
    if (unlikely(!arena.ready)) {
        for (size_t i = 0; i < ARRAY_COUNT(arena.by_length); i++) {
            list_init(&arena.by_length[i]);
        }
        list_init(&arena.all);
        list_init(&arena.dirty);
        arena.ready = true;
    }
}

static uint64_t all_dirty_pages(void) {
    return atomic_load_relaxed(&arena.dirty_pages);
}

static uint64_t all_dirty_bytes(void) {
    return all_dirty_pages() * PAGE_BYTES;
}

static void count_dirty(uint64_t more) {
    atomic_bump_owned(&arena.dirty_pages, more);
}

// Files the superslab again after its words changed.
static void refile(struct superslab *superslab) {
    const uint32_t longest = bit_longest_stretch(superslab->free);
    if (longest != superslab->longest) {
        list_remove(&superslab->length_link);
        if (superslab->longest != 0 && list_is_empty(&arena.by_length[superslab->longest])) {
            arena.lengths &= ~bit(superslab->longest - 1);
        }
        superslab->longest = (uint8_t)longest;
        if (longest != 0) {
            list_push_front(&arena.by_length[longest], &superslab->length_link);
            arena.lengths |= bit(longest - 1);
        }
    }
    const bool is_dirty = (superslab_dirty(superslab) | superslab->stuck) != 0;
    if (is_dirty && list_is_empty(&superslab->dirty_link)) {
        list_push_back(&arena.dirty, &superslab->dirty_link);
    } else if (!is_dirty) {
        list_remove(&superslab->dirty_link);
    }
}

_Atomic(uint32_t) arena_peak_pages;  // relaxed: see arena.h

static uint64_t held_pages(void) {
    return arena.used_pages + all_dirty_pages();
}

static uint64_t sum_pages(void) {
    return held_pages() + (atomic_load_relaxed(&arena.beside_bytes) >> PAGE_SHIFT);
}

static void note_sum(void) {
    arena.sum_peak_pages = greatest_u64(arena.sum_peak_pages, sum_pages());
}

// What made room so long ago would have gone anyway.
static void forget_old_room(uint64_t now_ms) {
    if (os_is_long_ago(arena.room_ms, option_live(purge_delay_ms), now_ms)) {
        arena.room_pages = 0;
    }
}

// What made room and is wanted again counts as if it had stayed: so a program that takes runs and huge blocks by turns pays for
// that once.
static MIDDLE_PATH void count_room_wanted(uint64_t new_pages) {
    forget_old_room(os_clock_ms_locked());
    const uint64_t back_pages = least_u64(new_pages, arena.room_pages);
    arena.room_pages -= back_pages;
    arena.sum_peak_pages += back_pages;
}

// Pages come into use, `new_pages` of them from the system.
static void count_used(uint64_t pages, uint64_t new_pages) {
    excess_needed(&arena.excess, new_pages * PAGE_BYTES);
    if (unlikely(arena.room_pages != 0) && new_pages != 0) {
        count_room_wanted(new_pages);
    }
    arena.used_pages += pages;
    if (unlikely(held_pages() > atomic_load_relaxed(&arena_peak_pages))) {
        atomic_store_relaxed(&arena_peak_pages, (uint32_t)held_pages());
    }
    note_sum();
}

static struct superslab *map_superslab(void) {
    struct superslab *superslab = arena.recycled;
    if (superslab != NULL) {
        arena.recycled = (struct superslab *)superslab->start;
    } else {
        superslab = metadata_alloc(sizeof *superslab);
        if (superslab == NULL) {
            return NULL;
        }
        list_init(&superslab->all_link);
        list_init(&superslab->length_link);
        list_init(&superslab->dirty_link);
    }
    char *start = os_map(SUPERSLAB_BYTES, SUPERSLAB_BYTES);
    if (start == NULL || !page_map_cover((uintptr_t)start, SUPERSLAB_BYTES)) {
        if (start != NULL) {
            os_unmap(start, SUPERSLAB_BYTES);
        }
        whole_store(&superslab->start, (uintptr_t)arena.recycled);
        arena.recycled = superslab;
        return NULL;
    }
    whole_store(&superslab->start, (uintptr_t)start);
    superslab->free = superslab->zero = ALL_PAGES;
    superslab->dirty_young = superslab->dirty_old = superslab->stuck = 0;
    atomic_store_relaxed(&superslab->run_start, 0);
    superslab->longest = 0;
    huge_pages_begin(superslab);
    arena.superslab_count++;
    arena.superslab_count_max = greatest_u64(arena.superslab_count_max, arena.superslab_count);
    arena.spare_count++;
    event_record(EVENT_superslab_mapped, (uintptr_t)start, arena.superslab_count);
    page_map_set_superslab(superslab->start, superslab);
    list_push_back(&arena.all, &superslab->all_link);
    refile(superslab);
    return superslab;
}

// The superslab must be wholly free. A mapping the system refuses to unmap stays in use.
static bool unmap_superslab(struct superslab *superslab) {
    const bool was_spare = superslab_is_spare(superslab);
    page_map_set_superslab(superslab->start, NULL);
    if (!os_unmap((void *)superslab->start, SUPERSLAB_BYTES)) {
        page_map_set_superslab(superslab->start, superslab);
        return false;
    }
    count_dirty(-(uint64_t)bit_count(superslab_dirty(superslab)));
    superslab->dirty_young = superslab->dirty_old = 0;
    arena.guard_count -= bit_count(superslab->stuck);
    superslab->free = superslab->zero = superslab->stuck = 0;
    list_remove(&superslab->all_link);
    refile(superslab);
    arena.spare_count -= was_spare;
    arena.superslab_count--;
    event_record(EVENT_superslab_unmapped, superslab->start, arena.superslab_count);
    huge_pages_end(superslab);
    whole_store(&superslab->start, (uintptr_t)arena.recycled);
    arena.recycled = superslab;
    return true;
}

// Where a run of that length may start: in memory that is still there if possible. 64 when nowhere.
static unsigned find_place(const struct superslab *superslab, unsigned page_count,
                           uint64_t allowed) {
    const unsigned place = best_fit(superslab_dirty(superslab), page_count, allowed);
    return place < SUPERSLAB_PAGES ? place : best_fit(superslab->free, page_count, allowed);
}

// Takes pages out of the free ones; returns those that are not known to read as zero.
static uint64_t claim_pages(struct superslab *superslab, uint64_t mask) {
    if (superslab_is_spare(superslab)) {
        arena.spare_count--;
    }
    count_dirty(-(uint64_t)bit_count(superslab_dirty(superslab) & mask));
    const uint64_t used = mask & ~superslab->zero;
    superslab->free &= ~mask;
    superslab->zero &= ~mask;
    superslab->dirty_young &= ~mask;
    superslab->dirty_old &= ~mask;
    refile(superslab);
    return used;
}

// The first of the superslabs whose longest stretch is that long which has a place for a run. Only an alignment can rule
// one out; the next ones are tried then, no more than SUPERSLABS_TRIED, since the arena's lock is held.
static struct superslab *first_with_place(unsigned length, unsigned page_count, uint64_t allowed,
                                          unsigned *place) {
    const struct list *all = &arena.by_length[length];
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
    for (uint64_t lengths = arena.lengths & ~bit_range(0, page_count - 1); lengths != 0;
         lengths &= lengths - 1) {
        struct superslab *superslab =
            first_with_place(bit_lowest(lengths) + 1, page_count, allowed, place);
        if (superslab != NULL) {
            return superslab;
        }
    }
    *place = 0;
    return map_superslab();
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
    lock_acquire(&arena.lock);
    prepare_lists();
    guard = guard && arena.guard_count < ARENA_GUARDS_MOST;
    const unsigned span = page_count + (guard ? 1 : 0);
    unsigned place;
    struct superslab *superslab = choose_superslab(span, allowed, &place);
    struct run *run = superslab == NULL ? NULL : descriptor_at(superslab, place);
    if (run == NULL) {
        lock_release(&arena.lock);
        return NULL;
    }
    const uint64_t new_pages = bit_count(superslab->zero & bit_range(place, span));
    runs_delay_needed(&arena.delay, new_pages * PAGE_BYTES);
    const bool is_first = superslab_is_spare(superslab);
    if (unlikely(is_first)) {
        huge_pages_advise(superslab, &arena.all, arena.superslab_count);
    }
    const uint64_t span_used = claim_pages(superslab, bit_range(place, span)) >> place;
    *used = span_used & bit_range(0, page_count);
    count_used(span, new_pages);
    whole_store(&run->start, superslab->start + place * PAGE_BYTES);
    run->page_count = (uint8_t)page_count;
    run->guarded = guard;
    arena.guard_count += guard;
    atomic_bump_owned(&superslab->run_start, bit(place));
    lock_release(&arena.lock);
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

// There is something to purge: due, and the next tick sets the time.
static void note_dirty(void) {
    if (atomic_load_relaxed(&arena.purge_due_ms) == UINT64_MAX) {
        atomic_store_relaxed(&arena.purge_due_ms, 0);
    }
}

static void release_pages(struct superslab *superslab, uint64_t mask) {
    superslab->free |= mask;
    superslab->dirty_young |= mask;
    count_dirty(bit_count(mask));
    refile(superslab);
    note_dirty();
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

uint64_t arena_purge_due(void) {
    return atomic_load_relaxed(&arena.purge_due_ms);
}

// A thread's clock may be older than that of the one that set the time, which is no sign of a delay made shorter.
bool arena_purge_is_due(uint64_t now_ms) {
    const uint64_t due_ms = arena_purge_due();
    return now_ms >= due_ms || (due_ms != UINT64_MAX &&
                                due_ms - now_ms > option_live(purge_delay_ms) + OS_CLOCKS_APART_MS);
}

static bool lift_guard(const struct superslab *superslab, unsigned place) {
    return os_commit((char *)superslab->start + place * PAGE_BYTES, PAGE_BYTES);
}

// Tries again to make stuck pages accessible. They hold what they held before they became guards.
static void free_stuck(struct superslab *superslab) {
    const bool was_spare = superslab_is_spare(superslab);
    for (uint64_t rest = superslab->stuck; rest != 0; rest &= rest - 1) {
        const unsigned place = bit_lowest(rest);
        if (!lift_guard(superslab, place)) {
            break;
        }
        superslab->stuck &= ~bit(place);
        arena.guard_count--;
        superslab->free |= bit(place);
        superslab->dirty_young |= bit(place);
        count_dirty(1);
    }
    refile(superslab);
    if (was_spare && !superslab_is_spare(superslab)) {
        arena.spare_count--;
    }
}

// What a round takes.
enum purge_scope {
    PURGE_EARLY,  // what has aged, but for superslabs that huge pages may back
    PURGE_AGED,
    PURGE_EVERYTHING,
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
    if (scope == PURGE_EVERYTHING) {
        due |= superslab->dirty_young;
    }
    superslab->dirty_old = superslab->dirty_young & ~due;
    superslab->dirty_young = 0;
    if (due == 0) {
        return 0;
    }
    count_dirty(-(uint64_t)bit_count(due));
    claim_pages(superslab, due);
    superslab->purging |= due;
    struct purge *purge = purge_begin(superslab, due);
    lock_release(&arena.lock);
    uint64_t purged = purge_pages(superslab, due);
    lock_acquire(&arena.lock);
    purge_end(purge);
    // A signal handler may have forked just now, and this be the child, which has freed the pages where the purge was not noted.
    due &= superslab->purging;
    purged &= due;
    superslab->purging &= ~due;
    superslab->free |= due;
    superslab->zero |= purged;
    superslab->dirty_young |= due & ~purged;
    count_dirty(bit_count(due & ~purged));
    *refused_pages = bit_count(due & ~purged);
    if (unlikely(*refused_pages != 0)) {
        note_dirty();
    }
    refile(superslab);
    if (due != 0 && superslab_is_spare(superslab)) {
        arena.spare_count++;
    }
    return bit_count(purged) * PAGE_BYTES;
}

// Unmaps the wholly free and clean superslabs beyond the few that are kept; those with stuck pages
// too, whose guards end with them. One that the system refuses to unmap is tried again in the next
// round.
static void unmap_spares(void) {
    struct list *link = arena.all.next;
    while (link != &arena.all && arena.spare_count > SPARE_SUPERSLABS) {
        struct superslab *superslab = CONTAINER_OF(link, struct superslab, all_link);
        link = link->next;
        if (superslab_is_spare(superslab) && !unmap_superslab(superslab)) {
            break;
        }
    }
}

// A superslab that is wholly free, and that the system refused to clear, since it is locked in memory: it may take it as a
// whole. Returns the bytes that are gone.
SLOW_PATH static size_t unmap_refused(struct superslab *superslab) {
    const size_t bytes = bit_count(superslab_dirty(superslab)) * PAGE_BYTES;
    return unmap_superslab(superslab) ? bytes : 0;
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
        struct superslab *superslab = CONTAINER_OF(arena.dirty.next, struct superslab, dirty_link);
        round->has_visited_all = list_is_empty(&arena.dirty) || superslab == first_done;
        round->is_over = round->has_visited_all ||
                         (round->rest_pages != 0 && all_dirty_pages() <= round->rest_pages);
        if (round->is_over) {
            break;
        }
        uint64_t *last = round->scope == PURGE_EVERYTHING ? &superslab->purge_round_full
                                                          : &superslab->purge_round;
        const bool is_done = *last >= round->number;
        if (!is_done && round->bytes + visits_bytes >= round->most_bytes) {
            break;
        }
        list_remove(&superslab->dirty_link);
        list_push_back(&arena.dirty, &superslab->dirty_link);
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
        if (superslab_is_spare(superslab) && arena.spare_count > SPARE_SUPERSLABS) {
            unmap_superslab(superslab);
        } else if (unlikely(refused_here != 0) && superslab_is_wholly_free(superslab) &&
                   arena.spare_count + refused_count++ >= SPARE_SUPERSLABS) {
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
    if (arena.open_round == 0) {
        arena.open_round = ++arena.purge_round;
        arena.open_scope = runs_delay_begin(&arena.delay, now_ms) ? PURGE_EARLY : PURGE_AGED;
        if (arena.open_scope == PURGE_AGED) {
            excess_decay(&arena.excess);
        }
    }
    atomic_store_relaxed(&arena.purge_due_ms, now_ms + runs_delay_ms(&arena.delay));
    struct round round = {.number = arena.open_round,
                          .scope = (enum purge_scope)arena.open_scope,
                          .most_bytes = most_bytes};
    go_round(&round);
    if (round.scope == PURGE_EARLY) {
        runs_delay_purged(&arena.delay, round.bytes);
    }
    if (round.is_over && arena.open_round == round.number) {
        arena.open_round = 0;
        runs_delay_end(&arena.delay, round.scope == PURGE_EARLY, now_ms);
    }
    return round.bytes;
}

// The lock is held.
static size_t purge_everything(void) {
    arena.open_round = 0;
    struct round round = {
        .number = ++arena.purge_round, .scope = PURGE_EVERYTHING, .most_bytes = ARENA_PURGE_ALL};
    go_round(&round);
    return round.bytes;
}

size_t arena_purge(uint64_t now_ms, size_t most_bytes) {
    const bool everything = most_bytes == ARENA_PURGE_ALL;
    lock_acquire(&arena.lock);
    prepare_lists();
    if (!everything && !arena_purge_is_due(now_ms)) {
        lock_release(&arena.lock);
        return 0;
    }
    const size_t bytes = everything ? purge_everything() : purge_by_clock(now_ms, most_bytes);
    // Of a round that is not over the next tick does more.
    const uint64_t next_ms = arena.open_round != 0 ? now_ms : now_ms + runs_delay_ms(&arena.delay);
    atomic_store_relaxed(&arena.purge_due_ms, list_is_empty(&arena.dirty) ? UINT64_MAX : next_ms);
    lock_release(&arena.lock);
    if (bytes != 0) {
        event_record(EVENT_purge, bytes, everything);
    }
    return bytes;
}

static void count_purged(size_t bytes) {
    if (bytes != 0) {
        count_event(COUNTER_purged_bytes, bytes);
        event_record(EVENT_purge, bytes, true);
    }
}

// Purges whatever is dirty until `rest_bytes` of it are left, of which `bound_bytes` may stay. The lock is held. The system
// refuses to take back what is locked in memory: so much stays then, and is not looked for again at every call. What others
// freed meanwhile is for their own purges.
static size_t purge_down_to(uint64_t rest_bytes, uint64_t bound_bytes) {
    struct round round = {.number = ++arena.purge_round,
                          .scope = PURGE_EVERYTHING,
                          .rest_pages = rest_bytes >> PAGE_SHIFT,
                          .most_bytes = ARENA_PURGE_ALL};
    go_round(&round);
    if (unlikely(round.refused_pages != 0 && round.has_visited_all &&
                 all_dirty_bytes() > bound_bytes)) {
        excess_accept(&arena.excess, round.refused_pages * PAGE_BYTES);
    }
    return round.bytes;
}

// Purges so much of what is dirty, or what there is. The lock is held.
static size_t purge_some(uint64_t bytes) {
    const uint64_t rest_bytes = all_dirty_bytes() - least_u64(bytes, all_dirty_bytes());
    return excess_is_over(&arena.excess, all_dirty_bytes(), rest_bytes)
               ? purge_down_to(rest_bytes, rest_bytes)
               : 0;
}

void arena_make_room(void) {
    lock_acquire(&arena.lock);
    prepare_lists();
    const uint64_t pages = sum_pages();
    size_t purged_bytes = 0;
    if (pages > arena.sum_peak_pages) {
        purged_bytes = purge_some((pages - arena.sum_peak_pages) * PAGE_BYTES);
        note_sum();
    }
    if (purged_bytes != 0) {
        const uint64_t now_ms = os_clock_ms_locked();
        forget_old_room(now_ms);
        arena.room_pages += purged_bytes >> PAGE_SHIFT;
        arena.room_ms = now_ms;
    }
    lock_release(&arena.lock);
    count_purged(purged_bytes);
}

void arena_purge_small(uint64_t most_bytes) {
    if (all_dirty_bytes() <= most_bytes) {
        lock_acquire(&arena.lock);
        prepare_lists();
        const size_t purged_bytes = purge_some(most_bytes);
        lock_release(&arena.lock);
        count_purged(purged_bytes);
    }
}

// What one call purges where too much is dirty; or twice as much as it freed, where that is more.
#define CALL_EXCESS_BYTES MIB

static void purge_excess(uint64_t bound_bytes, uint64_t freed_bytes) {
    lock_acquire(&arena.lock);
    const uint64_t now_bytes = all_dirty_bytes();
    // Where that is more than one call does, the next free goes on.
    const uint64_t part_bytes = greatest_u64(CALL_EXCESS_BYTES, 2 * freed_bytes);
    const uint64_t rest_bytes =
        greatest_u64(excess_rest(bound_bytes), now_bytes - least_u64(now_bytes, part_bytes));
    const size_t bytes = purge_down_to(rest_bytes, bound_bytes);
    if (bytes != 0) {
        excess_dropped(&arena.excess, bytes, bound_bytes);
    }
    lock_release(&arena.lock);
    count_purged(bytes);
}

// Nothing may stay: purge_delay_ms is 0.
static void purge_at_once(void) {
    size_t bytes = 0;
    lock_acquire(&arena.lock);
    if (excess_is_over(&arena.excess, all_dirty_bytes(), 0)) {
        bytes = purge_down_to(0, 0);
        if (list_is_empty(&arena.dirty)) {
            atomic_store_relaxed(&arena.purge_due_ms, UINT64_MAX);
        }
    }
    lock_release(&arena.lock);
    count_purged(bytes);
}

// Purges when more is dirty than may stay, of which `freed_bytes` are new; returns whether so much was. The lock is held, and
// released here.
static bool trim_and_unlock(uint64_t least_bytes, uint64_t freed_bytes) {
    const uint64_t bound_bytes =
        excess_bound(&arena.excess, arena.used_pages * PAGE_BYTES, least_bytes);
    const bool is_over = excess_is_over(&arena.excess, all_dirty_bytes(), bound_bytes);
    lock_release(&arena.lock);
    if (is_over) {
        purge_excess(bound_bytes, freed_bytes);
    }
    return is_over;
}

void arena_trim(uint64_t least_bytes) {
    if (all_dirty_bytes() > least_bytes) {
        lock_acquire(&arena.lock);
        trim_and_unlock(least_bytes, 0);
    }
}

// Pages that were a run's are free. The lock is held, and released here.
static void release_and_unlock(struct superslab *superslab, uint64_t mask) {
    const uint64_t pages = bit_count(mask);
    arena.used_pages -= pages;
    release_pages(superslab, mask);
    if (!trim_and_unlock(option_live(excess_bytes), pages * PAGE_BYTES) &&
        unlikely(option_live(purge_delay_ms) == 0)) {
        purge_at_once();
    }
}

void arena_give(struct run *run) {
    struct superslab *superslab = superslab_of(run);
    const unsigned place = run_place(run);
    const unsigned guard_place = place + run->page_count;
    const bool lifted = run->guarded && lift_guard(superslab, guard_place);
    atomic_store_relaxed(&run->kind, RUN_FREE);
    lock_acquire(&arena.lock);
    atomic_bump_owned(&superslab->run_start, -bit(place));
    superslab->movable |= may_move(run) ? bit(place) : 0;
    arena.guard_count -= lifted;
    if (run->guarded && !lifted) {
        superslab->stuck |= bit(guard_place);
        arena.used_pages--;
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
    lock_acquire(&arena.lock);
    const bool is_free = (superslab->free & mask) == mask;
    if (is_free) {
        const uint64_t new_pages = bit_count(superslab->zero & mask);
        runs_delay_needed(&arena.delay, new_pages * PAGE_BYTES);
        claim_pages(superslab, mask);
        count_used(more, new_pages);
        run->page_count = (uint8_t)page_count;
    }
    lock_release(&arena.lock);
    return is_free;
}

void arena_shorten(struct run *run, unsigned page_count) {
    if (run->guarded) {
        return;
    }
    struct superslab *superslab = superslab_of(run);
    const unsigned place = run_place(run);
    lock_acquire(&arena.lock);
    const uint64_t mask = bit_range(place + page_count, run->page_count - page_count);
    run->page_count = (uint8_t)page_count;
    release_and_unlock(superslab, mask);
}

void arena_totals(struct arena_totals *totals) {
    *totals = (struct arena_totals){0};
    lock_acquire(&arena.lock);
    prepare_lists();
    totals->mapped_bytes_max = arena.superslab_count_max * SUPERSLAB_BYTES;
    for (struct list *link = arena.all.next; link != &arena.all; link = link->next) {
        const struct superslab *superslab = CONTAINER_OF(link, struct superslab, all_link);
        totals->mapped_bytes += SUPERSLAB_BYTES;
        totals->free_bytes += bit_count(superslab->free) * PAGE_BYTES;
        totals->dirty_bytes += bit_count(superslab_dirty(superslab)) * PAGE_BYTES;
    }
    lock_release(&arena.lock);
}

void arena_visit_large(void (*visit)(struct run *run, void *context), void *context) {
    lock_acquire(&arena.lock);
    prepare_lists();
    for (struct list *link = arena.all.next; link != &arena.all; link = link->next) {
        struct superslab *superslab = CONTAINER_OF(link, struct superslab, all_link);
        for (uint64_t rest = atomic_load_relaxed(&superslab->run_start); rest != 0;
             rest &= rest - 1) {
            struct run *run = superslab_run(superslab, bit_lowest(rest));
            if (atomic_load_relaxed(&run->kind) == RUN_LARGE) {
                visit(run, context);
            }
        }
    }
    lock_release(&arena.lock);
}

void arena_fork_lock(void) {
    lock_acquire(&arena.lock);
}

void arena_fork_unlock(void) {
    lock_release(&arena.lock);
}

void arena_fork_child(void) {
    prepare_lists();
    purge_fork_child();
    for (struct list *link = arena.all.next; link != &arena.all; link = link->next) {
        struct superslab *superslab = CONTAINER_OF(link, struct superslab, all_link);
        const uint64_t own = superslab->purging == 0 ? 0 : purge_own_pages(superslab);
        const uint64_t pages = superslab->purging & ~own;
        if (pages != 0) {
            superslab->purging = own;
            release_pages(superslab, pages);
        }
    }
}
