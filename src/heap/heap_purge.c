#include "heap/heap_purge.h"

#include "config/options.h"
#include "os/events.h"
#include "space/arena_purge.h"
#include "space/huge_pages.h"
#include "space/purge_pages.h"
#include "space/space_hooks.h"

struct heap_sums heap_sums;  // relaxed: see heap_state.h

// All heaps together may keep EXCESS_HEAPS times excess_bytes, or as much as is in use; each this part of excess_bytes in any
// case, and it tells the others when what it keeps or uses has changed by that part.
#define EXCESS_PART_LEAST 16
#define EXCESS_PART_TOLD 32

static void tell(_Atomic(uint64_t) *sum, uint64_t *told_bytes, uint64_t bytes) {
    const uint64_t change = bytes > *told_bytes ? bytes - *told_bytes : *told_bytes - bytes;
    if (unlikely(change > option_live(excess_bytes) / EXCESS_PART_TOLD)) {
        atomic_add_relaxed(sum, bytes - *told_bytes);
        *told_bytes = bytes;
    }
}

void heap_tell_bytes(struct heap *heap) {
    tell(&heap_sums.used_bytes, &heap->told_used_bytes, heap->used_bytes);
    tell(&heap_sums.loose_bytes, &heap->told_loose_bytes,
         least_u64(heap->loose_bytes, option_live(excess_bytes)));
}

// What the heap may keep at least: what the others leave.
static uint64_t least_loose_bytes(const struct heap *heap) {
    const uint64_t most = option_live(excess_bytes);
    const uint64_t others = atomic_load_relaxed(&heap_sums.loose_bytes) - heap->told_loose_bytes;
    const uint64_t all =
        greatest_u64(EXCESS_HEAPS * most, atomic_load_relaxed(&heap_sums.used_bytes));
    const uint64_t left = all - least_u64(all, others);
    return least_u64(most, greatest_u64(left, most / EXCESS_PART_LEAST));
}

void heap_note_wanted(struct heap *heap, struct run *slab, unsigned count) {
    const uint64_t bytes = (uint64_t)count * size_classes[slab->class_index].block_bytes;
    if (slab->purged == SLAB_PURGED_EARLY) {
        heap->purge_delay.refault_bytes += bytes;
    } else {
        excess_needed(&heap->excess, bytes);
    }
    if (slab->clean_count == 0) {
        slab->purged = SLAB_PURGED_LONG_AGO;
    }
}

void heap_note_gone(struct heap *heap, const struct run *slab) {
    if (slab->purged == SLAB_PURGED_EXCESS) {
        const uint64_t bytes =
            (uint64_t)slab->clean_count * size_classes[slab->class_index].block_bytes;
        heap->gone_kib = (uint32_t)least_u64(heap->gone_kib + bytes / KIB, UINT32_MAX);
    }
}

// No more of it than is remembered at all.
void heap_note_again(struct heap *heap, const struct run *slab) {
    const uint64_t gone_kib = least_u64(heap->gone_kib, heap->excess.dropped_bytes / KIB);
    const uint64_t kib = least_u64(slab->page_count * PAGE_BYTES / KIB, gone_kib);
    heap->gone_kib = (uint32_t)(gone_kib - kib);
    excess_needed(&heap->excess, kib * KIB);
}

// What budgets count in bytes is time: a page given back takes 0.3 microseconds, a call of the system as long as so many bytes, a look
// at a slab as long as a page, the search for its free stretches some nanosecond for a block.
#define CALL_COST_BYTES (16 * KIB)
#define LOOK_COST_BYTES (4 * KIB)
#define BLOCK_COST_BYTES 8

// Whether this call is no visit that a budget bounds: the heap's own thread, or who wants all there is.
static bool is_unbounded(const struct heap *heap) {
    return heap->budget_bytes > HEAP_BUDGET_SELDOM;
}

static uint32_t clock_of_refused(uint64_t ms) {
    return (uint32_t)(ms / 1024);
}

void heap_note_refused(struct heap *heap) {
    heap->round.left_refused = true;
    if (heap->refused_wait == 0) {
        heap->refused_wait = 1;
        // At once, by whatever clock visitors have: one that the program makes up may be behind this one.
        heap->refused_due = 0;
    }
}

static size_t purge_slab(struct heap *heap, struct run *slab, size_t bytes_min,
                         enum slab_purged why) {
    // It asks again for what was given back before, which does not count; unless a former run may have left memory there, or the
    // system did not take it.
    const bool may_hold_more = slab->tail_dirty || slab->purge_age == SLAB_PURGE_REFUSED;
    const uint64_t most_bytes = may_hold_more ? UINT64_MAX : slab_loose_bytes(slab);
    heap_uncount(heap, slab);
    const struct slab_given_back purged = slab_purge(slab, bytes_min);
    slab->purged = (uint8_t)why;
    heap_count_in(heap, slab);
    heap_spend(heap, purged.bytes + purged.calls * CALL_COST_BYTES +
                         slab->block_count * BLOCK_COST_BYTES);
    if (unlikely(slab->purge_age == SLAB_PURGE_REFUSED)) {
        heap_note_refused(heap);
    }
    return least_u64(purged.bytes, most_bytes);
}

// Shorter stretches of free pages are not worth a call each where it is about much memory: the next purge that is
// due takes them.
#define EXCESS_BYTES_MIN (8 * KIB)

// Pages of other slabs are rarely free, and a purge that comes before most blocks are free finds nothing and does not come
// again.
static bool is_worth_purging(const struct run *slab) {
    return slab_loose_bytes(slab) != 0 && slab_is_sparse(slab) &&
           size_classes[slab->class_index].block_bytes >= option_live(purge_slab_block_min);
}

static void note_purge(struct heap *heap, size_t bytes) {
    heap_count(heap, COUNTER_slab_purged_bytes, bytes);
    if (bytes != 0) {
        event_record(EVENT_slab_purge, heap->id, bytes);
    }
}

static void end_purge(struct heap *heap, size_t bytes, uint64_t bound_bytes) {
    if (bytes != 0) {
        excess_dropped(&heap->excess, bytes, bound_bytes);
        // What is forgotten by now, and what went just now, is not what went with slabs.
        heap->gone_kib =
            (uint32_t)least_u64(heap->gone_kib, (heap->excess.dropped_bytes - bytes) / KIB);
    }
    heap->keeps_too_much = heap->loose_bytes > excess_rest(bound_bytes);
    note_purge(heap, bytes);
}

void heap_purge_sparse(struct heap *heap, struct run *slab) {
    const uint64_t bound_bytes =
        excess_bound(&heap->excess, heap->used_bytes, least_loose_bytes(heap));
    end_purge(heap,
              is_worth_purging(slab) ? purge_slab(heap, slab, EXCESS_BYTES_MIN, SLAB_PURGED_EXCESS)
                                     : 0,
              bound_bytes);
}

static void begin_class(const struct heap *heap, struct slab_walk *walk, unsigned class_index) {
    walk->class_index = (uint8_t)class_index;
    walk->link = heap->bins[class_index].partial.next;
    walk->left = heap->bins[class_index].slab_count;
}

static void walk_begin(const struct heap *heap, struct slab_walk *walk) {
    begin_class(heap, walk, SIZE_CLASS_COUNT - 1);
}

// The next slab, of blocks of purge_slab_block_min at least. NULL: there is none left, and the walk is over.
static struct run *walk_next(struct heap *heap, struct slab_walk *walk) {
    while (walk->left == 0 || walk->link == &heap->bins[walk->class_index].partial ||
           size_classes[walk->class_index].block_bytes < option_live(purge_slab_block_min)) {
        if (walk->class_index == 0) {
            walk->link = NULL;
            return NULL;
        }
        begin_class(heap, walk, walk->class_index - 1u);
    }
    struct run *slab = CONTAINER_OF(walk->link, struct run, bin_link);
    walk->link = walk->link->next;
    walk->left--;
    heap_spend(heap, LOOK_COST_BYTES);
    return slab;
}

// Goes on purging sparse slabs, as far as the budget goes, until so much is left, or all were looked at: then the walk is over.
static size_t purge_sparse_slabs(struct heap *heap, uint64_t rest_bytes) {
    struct slab_walk *walk = &heap->excess_walk;
    size_t bytes = 0;
    while (heap->budget_bytes != 0) {
        if (heap->loose_bytes <= rest_bytes) {
            walk->link = NULL;
            break;
        }
        struct run *slab = walk_next(heap, walk);
        if (slab == NULL) {
            break;
        }
        if (is_worth_purging(slab)) {
            bytes += purge_slab(heap, slab, EXCESS_BYTES_MIN, SLAB_PURGED_EXCESS);
        }
    }
    return bytes;
}

// What a flush of the heap's own thread spends where slabs keep too much: some 0.05 ms, and more where more has become loose since
// the flush before, since not all slabs are sparse, and a look or a call counts as well.
#define PART_LEAST_BYTES (256 * KIB)
#define PART_OF_LOOSE 16
#define PART_MOST_BYTES (4 * MIB)

static uint64_t part_of_flush(const struct heap *heap) {
    const uint64_t new_bytes =
        heap->loose_bytes - least_u64(heap->loose_bytes, heap->excess_seen_bytes);
    return greatest_u64(PART_LEAST_BYTES, least_u64(PART_MOST_BYTES, PART_OF_LOOSE * new_bytes));
}

// The part of the walk that this call does.
static size_t go_excess_walk(struct heap *heap, uint64_t rest_bytes) {
    if (!is_unbounded(heap)) {
        return purge_sparse_slabs(heap, rest_bytes);
    }
    const size_t budget_bytes = heap->budget_bytes;
    heap->budget_bytes = part_of_flush(heap);
    const size_t bytes = purge_sparse_slabs(heap, rest_bytes);
    heap->budget_bytes = budget_bytes;
    heap->excess_seen_bytes = heap->loose_bytes;
    return bytes;
}

// What slabs keep beyond half of excess_bytes empty runs do not keep besides, so that whoever frees last leaves one and a
// half times that in both together, not twice; half of it runs may keep in any case. Other threads, which the heap's own may
// wait for, leave it to the next free.
SLOW_PATH static void trim_runs(const struct heap *heap) {
    const uint64_t most = option_live(excess_bytes);
    if (is_unbounded(heap)) {
        arena_trim(most - least_u64(heap->loose_bytes - most / 2, most / 2));
    }
}

// Of larger blocks first: they free more pages for a call.
void heap_purge_excess(struct heap *heap) {
    const uint64_t bound_bytes =
        excess_bound(&heap->excess, heap->used_bytes, least_loose_bytes(heap));
    heap_tell_bytes(heap);
    if (unlikely(heap->loose_bytes > option_live(excess_bytes) / 2)) {
        trim_runs(heap);
    }
    if (heap->budget_bytes == 0) {
        // Slabs may have become sparse with nobody to purge them: whoever has a budget looks for them, at all, and once more where a
        // walk is past them.
        heap->excess.accepted_bytes = 0;
        heap->excess_again = heap->excess_walk.link != NULL;
        return;
    }
    if (likely(heap->excess_walk.link == NULL)) {
        if (!excess_is_over(&heap->excess, heap->loose_bytes, bound_bytes)) {
            // What was too much may have been handed out again, or have gone by age.
            if (unlikely(heap->keeps_too_much) && heap->loose_bytes <= excess_rest(bound_bytes)) {
                heap->keeps_too_much = false;
            }
            return;
        }
        walk_begin(heap, &heap->excess_walk);
        heap->excess_again = false;
        heap->excess_seen_bytes = heap->loose_bytes;
    }
    end_purge(heap, go_excess_walk(heap, excess_rest(bound_bytes)), bound_bytes);
    if (heap->excess_walk.link == NULL && heap->loose_bytes > bound_bytes && !heap->excess_again) {
        excess_accept(&heap->excess, heap->loose_bytes);
    }
    heap_tell_bytes(heap);
}

// What becomes of the heap's delay. True: it is longer now.
static bool ask_delay(struct heap *heap) {
    delay_hook *hook = atomic_load_relaxed(&space_hooks.delay);
    if (hook == NULL || option_live(learn) == 0) {
        return false;
    }
    const uint64_t before_ms = heap_purge_delay_ms(heap);
    hook(&heap->purge_delay, option_live(slab_purge_delay_ms));
    return heap_purge_delay_ms(heap) > before_ms;
}

// False: it is too early for it, as the learner finds.
static bool round_begin(struct heap *heap, bool now, bool early) {
    struct slab_round *round = &heap->round;
    bool is_longer = false;
    if (now) {
        heap->put_since_purge = heap->put_since_early = false;
    } else {
        // What a visitor had begun is begun anew when the heap is idle again.
        const bool was_visited = !heap_round_is_over(heap) && round->now;
        heap->put_since_purge |= was_visited;
        heap->put_since_early |= was_visited;
        is_longer = ask_delay(heap);
    }
    walk_begin(heap, &round->walk);
    round->looked_through_count = 0;
    round->now = now;
    round->early = early;
    round->left_some = round->left_refused = false;
    if (is_longer && early) {
        round->walk.link = NULL;
        return false;
    }
    return true;
}

// What the system refused is tried again by who gives everything back, and by rounds at the option's delay once the system takes
// something.
static bool is_worth_a_try(const struct heap *heap, const struct run *slab) {
    const bool gives_all = heap->round.now && is_unbounded(heap);
    return likely(slab->purge_age != SLAB_PURGE_REFUSED) ||
           (!heap->round.early && (gives_all || !purge_is_refused()));
}

// What the round makes of a slab. Returns the bytes given back.
static size_t round_visit(struct heap *heap, struct run *slab) {
    struct slab_round *round = &heap->round;
    round->looked_through_count++;
    if (slab->purge_age == SLAB_PURGE_NONE) {
        return 0;
    }
    if (!is_worth_a_try(heap, slab)) {
        round->left_refused = true;
        return 0;
    }
    if (round->early && huge_pages_may_back((void *)slab->start)) {
        round->left_some = true;
    } else if (slab->purge_age != SLAB_PURGE_USED || round->now) {
        return purge_slab(heap, slab, 0, round->early ? SLAB_PURGED_EARLY : SLAB_PURGED_LONG_AGO);
    } else {
        slab->purge_age = SLAB_PURGE_AGED;
    }
    return 0;
}

// Begins a round, or goes on with one that an earlier call had no budget for: the heap's thread with its own, a visitor with a
// visitor's, unless more is asked for.
static size_t purge_round(struct heap *heap, bool now, bool early) {
    struct slab_round *round = &heap->round;
    if (heap_round_is_over(heap) || is_unbounded(heap) || round->now != now ||
        (!early && round->early)) {
        if (!round_begin(heap, now, early)) {
            return 0;
        }
    }
    size_t bytes = 0;
    while (heap->budget_bytes != 0) {
        struct run *slab = walk_next(heap, &round->walk);
        if (slab == NULL) {
            atomic_store_relaxed(&heap->looked_through_count, round->looked_through_count);
            break;
        }
        bytes += round_visit(heap, slab);
    }
    heap_tell_bytes(heap);
    note_purge(heap, bytes);
    return bytes;
}

// A page that stays locked for good is asked for every nine minutes in the end.
#define REFUSED_WAIT_MOST 9

bool heap_may_purge_refused(const struct heap *heap, uint64_t now_ms) {
    return unlikely(heap->refused_wait != 0) && !purge_is_refused() &&
           clock_of_refused(now_ms) >= heap->refused_due;
}

void heap_put_off_refused(struct heap *heap, uint64_t now_ms) {
    if (heap_may_purge_refused(heap, now_ms)) {
        heap->refused_due = clock_of_refused(now_ms) + (1u << heap->refused_wait);
        heap->refused_wait = (uint8_t)least_u64(heap->refused_wait + 1u, REFUSED_WAIT_MOST);
    }
}

size_t heap_purge_slabs(struct heap *heap, bool now) {
    const size_t bytes = purge_round(heap, now, false);
    if (heap_round_is_over(heap)) {
        excess_decay(&heap->excess);
        heap->refused_wait = heap->round.left_refused ? heap->refused_wait : 0;
    }
    return bytes;
}

bool heap_purge_early(struct heap *heap, bool now) {
    const size_t bytes = purge_round(heap, now, true);
    heap->purge_delay.early_bytes += heap->round.early ? bytes : 0;
    return heap->round.left_some;
}

// Where there are more slabs to look through the delay is longer, the option's with so many: looking takes no more of the time
// than it would then.
#define SLABS_AT_LEISURE 4096

uint64_t heap_purge_delay_ms(const struct heap *heap) {
    const uint64_t most_ms = option_live(slab_purge_delay_ms);
    if (option_live(learn) == 0 || atomic_load_relaxed(&space_hooks.delay) == NULL) {
        return most_ms;
    }
    const uint64_t learned_ms =
        purge_delay_learned_ms(&heap->purge_delay, PURGE_EARLY_PART, most_ms);
    const uint64_t slabs_ms =
        most_ms * atomic_load_relaxed(&heap->looked_through_count) / SLABS_AT_LEISURE;
    return least_u64(greatest_u64(learned_ms, slabs_ms), most_ms);
}
