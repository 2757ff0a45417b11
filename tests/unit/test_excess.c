// What goes back at once because it is too much: the bound, and its users, superslabs and the slabs of a heap.
#include "isolate.h"

#include <string.h>

#include "base/bits.h"
#include "config/options.h"
#include "control/learner.h"
#include "fake_os.h"
#include "heap/heap.h"
#include "heap/heap_check.h"
#include "heap/heap_purge.h"
#include "heap/huge.h"
#include "heap/slab.h"
#include "plain_runs.h"
#include "space/arena.h"
#include "space/excess.h"
#include "space/page_map.h"

// ---- The bound ----

static void test_bound(void **state) {
    (void)state;
    struct excess excess = {0};
    assert_int_equal(excess_bound(&excess, 0, 10 * MIB), 10 * MIB);
    assert_int_equal(excess_bound(&excess, 80 * MIB, 10 * MIB), 10 * MIB);
    assert_int_equal(excess_bound(&excess, 160 * MIB, 10 * MIB), 20 * MIB);
    assert_int_equal(excess_rest(20 * MIB), 10 * MIB);
    // Terabytes in use may be addresses alone.
    options.excess_bytes = 4 * MIB;
    assert_int_equal(excess_bound(&excess, UINT64_C(1) << 40, 10 * MIB), 32 * MIB);
    assert_int_equal(excess_bound(&excess, UINT64_C(1) << 40, 100 * MIB), 100 * MIB);
}

static void test_what_is_wanted_again_raises_the_bound(void **state) {
    (void)state;
    learner_start();
    options.purge_delay_ms = 500;
    static struct heap owner;  // the log wants its number
    struct excess *excess = &owner.excess;
    excess_needed(excess, 5 * MIB);  // nothing went before
    assert_int_equal(excess_bound(excess, 0, 10 * MIB), 10 * MIB);
    excess_dropped(excess, 7 * MIB, 10 * MIB);
    fake_os_pass_ms(500);
    excess_needed(excess, 5 * MIB);
    assert_int_equal(excess_bound(excess, 0, 10 * MIB), 15 * MIB);
    // No more than what went.
    excess_needed(excess, 5 * MIB);
    assert_int_equal(excess_bound(excess, 0, 10 * MIB), 17 * MIB);
    // Too late: it was right to let it go.
    excess_dropped(excess, 7 * MIB, 17 * MIB);
    fake_os_pass_ms(501);
    excess_needed(excess, 5 * MIB);
    assert_int_equal(excess_bound(excess, 0, 10 * MIB), 17 * MIB);
    for (unsigned i = 0; i < 10; i++) {
        excess_decay(excess);
    }
    assert_int_equal(excess_bound(excess, 0, 10 * MIB), 10 * MIB);
}

// As in the child of a fork whose namespace has a time of its own: when it was given back nobody can tell.
static void test_clock_that_goes_back(void **state) {
    (void)state;
    learner_start();
    static struct heap owner;
    fake_os_pass_ms(10000);
    excess_dropped(&owner.excess, 7 * MIB, 10 * MIB);
    fake_os_pass_ms(-UINT64_C(5000));
    excess_needed(&owner.excess, 5 * MIB);
    assert_int_equal(excess_bound(&owner.excess, 0, 10 * MIB), 10 * MIB);
    assert_int_equal(owner.excess.dropped_bytes, 0);
}

static uint64_t decided(void) {
    return atomic_load_relaxed(&decision_log.decided);
}

// The static bound, from the moment that the option says so.
static void test_without_the_learner_the_bound_stays(void **state) {
    (void)state;
    static struct heap owner;
    struct excess *excess = &owner.excess;
    excess_dropped(excess, 7 * MIB, 10 * MIB);
    excess_needed(excess, 1 * MIB);  // nobody is there to learn from it
    assert_int_equal(excess_bound(excess, 0, 10 * MIB), 10 * MIB);
    learner_start();
    excess_needed(excess, 5 * MIB);
    assert_int_equal(excess_bound(excess, 0, 10 * MIB), 15 * MIB);
    assert_int_equal(decided(), 1);
    assert_true(options_set("learn", "0"));
    assert_int_equal(excess_bound(excess, 0, 10 * MIB), 10 * MIB);
    excess_needed(excess, 1 * MIB);
    assert_int_equal(decided(), 1);
    // What was learned before is forgotten with it.
    assert_true(options_set("learn", "1"));
    assert_int_equal(excess_bound(excess, 0, 10 * MIB), 10 * MIB);
}

// One of a heap that has learned nothing yet.
static void decide(void) {
    static struct heap owners[4];
    static unsigned count;
    struct excess *excess = &owners[count++].excess;
    const uint64_t before = decided();
    excess_dropped(excess, 7 * MIB, 10 * MIB);
    excess_needed(excess, 5 * MIB);
    assert_int_equal(decided(), before + 1);
}

// The second round begins, and comes to a row with this number.
static struct decision *decide_over(uint64_t number) {
    struct decision *row = &decision_log.decisions[1];
    atomic_store_relaxed(&row->number, number);
    atomic_store_relaxed(&row->to, 4711);
    atomic_store_relaxed(&decision_log.decided, DECISION_COUNT);
    decide();
    return row;
}

static void test_rows_are_of_one_writer(void **state) {
    (void)state;
    learner_start();
    decide();
    struct decision *row = &decision_log.decisions[1];
    assert_int_equal(atomic_load_relaxed(&row->number), 1);
    // Of the round before.
    row = decide_over(1);
    assert_int_equal(atomic_load_relaxed(&row->number), DECISION_COUNT + 1);
    assert_int_not_equal(atomic_load_relaxed(&row->to), 4711);
    // Another is about to write it.
    row = decide_over(0);
    assert_int_equal(atomic_load_relaxed(&row->number), 0);
    assert_int_equal(atomic_load_relaxed(&row->to), 4711);
    // Its writer was held up for a whole round.
    row = decide_over(2 * DECISION_COUNT + 1);
    assert_int_equal(atomic_load_relaxed(&row->number), 2 * DECISION_COUNT + 1);
    assert_int_equal(atomic_load_relaxed(&row->to), 4711);
}

// ---- Superslabs ----

enum { RUN_COUNT = 64 };

// One wave of demand: so many runs of 4 MiB taken, touched and given back.
static void wave(unsigned count) {
    static struct run *runs[RUN_COUNT];
    for (unsigned i = 0; i < count; i++) {
        uint64_t used;
        runs[i] = arena_take(SUPERSLAB_PAGES, PAGE_BYTES, false, &used);
        assert_non_null(runs[i]);
        memset((void *)runs[i]->start, 1, 1);
    }
    for (unsigned i = 0; i < count; i++) {
        arena_give(runs[i]);
    }
    assert_int_equal(arena_check(), 0);
}

static void test_spike_goes_back_while_it_is_freed(void **state) {
    (void)state;
    page_map_init();
    options.excess_bytes = 32 * MIB;
    wave(RUN_COUNT);
    assert_true(dirty_bytes() <= 32 * MIB);
    assert_true(fake_os_purged_bytes() >= (RUN_COUNT * SUPERSLAB_BYTES) - 32 * MIB);
}

static void test_below_the_bound_nothing_goes(void **state) {
    (void)state;
    page_map_init();
    options.excess_bytes = 32 * MIB;
    wave(8);
    assert_int_equal(dirty_bytes(), 32 * MIB);
    assert_int_equal(fake_os_purged_bytes(), 0);
    // What is in use allows for more.
    static struct run *runs[RUN_COUNT];
    for (unsigned i = 0; i < RUN_COUNT; i++) {
        uint64_t used;
        runs[i] = arena_take(SUPERSLAB_PAGES, PAGE_BYTES, false, &used);
        assert_non_null(runs[i]);
    }
    options.excess_bytes = 8 * MIB;
    arena_give(runs[0]);
    arena_give(runs[1]);
    arena_give(runs[2]);
    assert_int_equal(fake_os_purged_bytes(), 0);
}

static void test_waves_are_paid_for_once(void **state) {
    (void)state;
    page_map_init();
    learner_start();
    options.excess_bytes = 32 * MIB;
    uint64_t purged_bytes = 0;
    for (unsigned i = 0; i < 10; i++) {
        wave(RUN_COUNT);
        fake_os_pass_ms(10);
        if (i == 3) {
            purged_bytes = fake_os_purged_bytes();
        }
    }
    assert_true(purged_bytes > 0);
    assert_int_equal(fake_os_purged_bytes(), purged_bytes);
    // Rows for what changed much, not for each superslab.
    assert_in_range(decided(), 2, 8);
    uint64_t bound = 32 * MIB;
    for (unsigned number = 1; number <= decided(); number++) {
        struct decision *row = &decision_log.decisions[number];
        assert_int_equal(atomic_load_relaxed(&row->knob), POLICY_KNOB_excess_bytes);
        assert_int_equal(atomic_load_relaxed(&row->signal), POLICY_SIGNAL_refault);
        assert_int_equal(atomic_load_relaxed(&row->heap), 0);
        assert_int_equal(atomic_load_relaxed(&row->from), bound);
        bound = atomic_load_relaxed(&row->to);
    }
    assert_true(bound > 128 * MIB);
}

// What the waves above learn is what is not paid for again.
static void test_without_the_learner_each_wave_is_paid_for(void **state) {
    (void)state;
    page_map_init();
    learner_start();
    options.learn = 0;
    options.excess_bytes = 32 * MIB;
    for (unsigned i = 1; i <= 10; i++) {
        wave(RUN_COUNT);
        assert_true(fake_os_purged_bytes() >= i * (RUN_COUNT * SUPERSLAB_BYTES - 32 * MIB));
    }
    assert_int_equal(decided(), 0);
}

// Where the system refuses to take memory back (mlockall), it is not asked for all of it at every free.
static void test_refused_purges_are_not_tried_at_every_free(void **state) {
    (void)state;
    page_map_init();
    options.excess_bytes = 8 * MIB;
    // None of the superslabs is wholly free, which would be unmapped.
    struct run *runs[RUN_COUNT];
    for (unsigned i = 0; i < RUN_COUNT; i++) {
        runs[i] = take_plain(SUPERSLAB_PAGES - 1);
        take_plain(1);
    }
    fake_os_fail(OS_MADVISE, 1, true);
    for (unsigned i = 0; i < RUN_COUNT; i++) {
        arena_give(runs[i]);
    }
    assert_int_equal(dirty_bytes(), RUN_COUNT * (SUPERSLAB_PAGES - 1) * PAGE_BYTES);
    // With one call more for one of eight, for a part of it (space/purge_pages.c).
    assert_true(fake_os_calls(OS_MADVISE) < 9 * RUN_COUNT);
}

// ---- The slabs of a heap ----

enum { BLOCK_COUNT = 63 * 1500, BLOCK_CLASS_BYTES = 1024, KEPT_ONE_IN = 1000 };

static struct heap heap;

static void add_bytes(const struct list *head, uint64_t *used_bytes, uint64_t *loose_bytes) {
    for (const struct list *link = head->next; link != head; link = link->next) {
        const struct run *slab = CONTAINER_OF(link, struct run, bin_link);
        *used_bytes += (uint64_t)(slab->block_count - slab->free_count) *
                       size_classes[slab->class_index].block_bytes;
        *loose_bytes += slab_loose_bytes(slab);
    }
}

static void check_bytes(void) {
    uint64_t used_bytes = 0;
    uint64_t loose_bytes = 0;
    for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        add_bytes(&heap.bins[i].partial, &used_bytes, &loose_bytes);
    }
    add_bytes(&heap.full, &used_bytes, &loose_bytes);
    assert_int_equal(heap.used_bytes, used_bytes);
    assert_int_equal(heap.loose_bytes, loose_bytes);
    assert_int_equal(heap_check(&heap), 0);
}

static void *blocks[BLOCK_COUNT];

static void take_blocks(uint64_t class_index) {
    for (unsigned i = 0; i < BLOCK_COUNT; i += 63) {
        unsigned got = 0;
        while (got < 63) {
            got += heap_take(&heap, class_index, 63 - got, blocks + i + got);
        }
    }
}

static void heap_put_by(unsigned step, void *const *freed, unsigned count) {
    for (unsigned i = 0; i < count; i += step) {
        heap_put(&heap, freed + i, step < count - i ? step : count - i);
    }
}

static void heap_put_all(void *const *freed, unsigned count) {
    heap_put_by(1, freed, count);
}

static bool is_beyond_the_bound_after_free(void *block) {
    heap_put(&heap, &block, 1);
    return heap.loose_bytes > excess_bound(&heap.excess, heap.used_bytes, options.excess_bytes) &&
           heap.loose_bytes > heap.excess.accepted_bytes;
}

static void test_sparse_slabs_go_back_while_they_are_freed(void **state) {
    (void)state;
    const uint64_t class_index = size_class_index(BLOCK_CLASS_BYTES);
    page_map_init();
    options.excess_bytes = 8 * MIB;
    heap_init(&heap, 2);
    take_blocks(class_index);
    check_bytes();
    for (unsigned i = 0; i < BLOCK_COUNT; i++) {
        *(char *)blocks[i] = 1;
        if (i % KEPT_ONE_IN != 0) {
            heap_put(&heap, blocks + i, 1);
        }
    }
    check_bytes();
    assert_true(heap.loose_bytes <= 8 * MIB);
    assert_true(fake_os_purged_bytes() > 0);
    for (unsigned i = 0; i < BLOCK_COUNT; i += KEPT_ONE_IN) {
        assert_int_equal(*(char *)blocks[i], 1);
    }
    // What went is handed out again, zeroed or not, and counted.
    assert_true(heap_take(&heap, class_index, 63, blocks) > 0);
    check_bytes();
}

static void shuffle_blocks(void) {
    uint64_t random_state = 59;
    for (unsigned i = BLOCK_COUNT - 1; i > 0; i--) {
        const unsigned other = (unsigned)(random_next(&random_state) % (i + 1));
        void *block = blocks[i];
        blocks[i] = blocks[other];
        blocks[other] = block;
    }
}

// Blocks freed at random pass the bound while pages are hardly ever free: each slab is purged when it has become sparse.
static void thin_out_by(unsigned step) {
    enum { THIN_CLASS_BYTES = 416, THIN_KEPT_ONE_IN = 20 };
    page_map_init();
    options.excess_bytes = 8 * MIB;
    heap_init(&heap, 2);
    take_blocks(size_class_index(THIN_CLASS_BYTES));
    shuffle_blocks();
    const unsigned freed_first = BLOCK_COUNT / 2;
    heap_put_by(step, blocks, freed_first);
    assert_int_equal(fake_os_purged_bytes(), 0);
    heap_put_by(step, blocks + freed_first,
                BLOCK_COUNT - BLOCK_COUNT / THIN_KEPT_ONE_IN - freed_first);
    assert_true(fake_os_purged_bytes() > BLOCK_COUNT * THIN_CLASS_BYTES / 6);
    check_bytes();
}

static void test_slabs_that_thin_out_are_purged_once_they_are_sparse(void **state) {
    (void)state;
    thin_out_by(1);
}

static void test_slabs_that_thin_out_by_whole_flushes(void **state) {
    (void)state;
    thin_out_by(63);
}

// The same below the smallest block whose slabs may be purged.
static void test_sparse_slabs_of_small_blocks_may_be_left_alone(void **state) {
    (void)state;
    page_map_init();
    options.excess_bytes = 1 * MIB;
    options.purge_slab_block_min = 2 * BLOCK_CLASS_BYTES;
    heap_init(&heap, 2);
    take_blocks(size_class_index(BLOCK_CLASS_BYTES));
    shuffle_blocks();
    heap_put_all(blocks, BLOCK_COUNT - BLOCK_COUNT / 20);
    assert_int_equal(fake_os_purged_bytes(), 0);
}

// Where nothing of it may be purged the bound follows: it is not looked for again at every free.
static void test_what_must_stay_is_not_tried_at_every_free(void **state) {
    (void)state;
    page_map_init();
    options.excess_bytes = 1 * MIB;
    options.purge_slab_block_min = 2 * BLOCK_CLASS_BYTES;
    heap_init(&heap, 2);
    take_blocks(size_class_index(BLOCK_CLASS_BYTES));
    unsigned tried = 0;
    for (unsigned i = 0; i < BLOCK_COUNT; i++) {
        tried += i % 32 != 0 && is_beyond_the_bound_after_free(blocks[i]);
    }
    assert_int_equal(tried, 0);
    assert_true(heap.loose_bytes > 8 * options.excess_bytes);
    assert_int_equal(fake_os_purged_bytes(), 0);
    check_bytes();
}

// Puts blocks back, from blocks[freed] on, until the heap keeps so many bytes. Returns how many are back.
static unsigned put_until(unsigned freed, uint64_t loose_bytes) {
    while (heap.loose_bytes < loose_bytes) {
        heap_put(&heap, blocks + freed++, 1);
    }
    return freed;
}

// Both bounds were reached at once by a spike that was freed: what slabs keep beyond half of theirs, runs do not.
static void test_slabs_and_runs_share_what_may_stay(void **state) {
    (void)state;
    page_map_init();
    options.excess_bytes = 32 * MIB;
    heap_init(&heap, 2);
    take_blocks(size_class_index(BLOCK_CLASS_BYTES));
    shuffle_blocks();
    wave(8);
    unsigned freed = put_until(0, 16 * MIB);
    assert_int_equal(dirty_bytes(), 32 * MIB);
    freed = put_until(freed, 20 * MIB);
    assert_in_range(dirty_bytes(), 1, 28 * MIB);
    wave(8);
    assert_int_equal(dirty_bytes(), 32 * MIB);
    // A thread that the heap's own may wait for leaves it at that.
    heap.budget_bytes = 8 * MIB;
    freed = put_until(freed, 31 * MIB);
    assert_int_equal(dirty_bytes(), 32 * MIB);
    heap.budget_bytes = HEAP_BUDGET_ALL;
    for (unsigned i = 0; i < 5; i++) {
        heap_put(&heap, blocks + freed++, 1);
        assert_int_equal(dirty_bytes(),
                         (28 - least_u64(i, 3) * 4) * MIB);  // a superslab's in one call
    }
    assert_int_equal(arena_check(), 0);
    check_bytes();
}

// Half of it they keep in any case, and an eighth of what is in use.
static void test_runs_keep_their_part_whatever_slabs_keep(void **state) {
    (void)state;
    page_map_init();
    options.excess_bytes = 16 * MIB;
    options.purge_slab_block_min = 2 * BLOCK_CLASS_BYTES;
    heap_init(&heap, 2);
    take_blocks(size_class_index(BLOCK_CLASS_BYTES));
    shuffle_blocks();
    wave(2);
    put_until(0, 40 * MIB);
    assert_int_equal(dirty_bytes(), 8 * MIB);
    assert_int_equal(fake_os_purged_bytes(), 0);
}

// Heaps that fall silent with what they may keep: the first ones have their own bound, those that follow what these
// leave of the bound of all.
enum { HEAP_COUNT = 24, HEAP_BLOCKS = 63 * 24, HEAP_CLASS_BYTES = 8192 };

static void test_many_heaps_share_a_bound(void **state) {
    (void)state;
    static struct heap heaps[HEAP_COUNT];
    static void *of_heap[HEAP_COUNT][HEAP_BLOCKS];
    const uint64_t class_index = size_class_index(HEAP_CLASS_BYTES);
    const unsigned per_slab = size_classes[class_index].block_count;  // of which one is kept
    page_map_init();
    options.excess_bytes = 16 * MIB;
    for (unsigned h = 0; h < HEAP_COUNT; h++) {
        heap_init(&heaps[h], 2 + h);
        for (unsigned got = 0; got < HEAP_BLOCKS;) {
            got += heap_take(&heaps[h], class_index, least_u64(63, HEAP_BLOCKS - got),
                             of_heap[h] + got);
        }
    }
    uint64_t loose_bytes = 0;
    for (unsigned h = 0; h < HEAP_COUNT; h++) {
        for (unsigned i = 0; i < HEAP_BLOCKS; i++) {
            if (i % per_slab != 0) {
                heap_put(&heaps[h], of_heap[h] + i, 1);
            }
        }
        loose_bytes += heaps[h].loose_bytes;
        assert_int_equal(heap_check(&heaps[h]), 0);
    }
    // While much is in use as much may be kept, and 10 MiB of the first heap stay; in the end four times the bound of one.
    assert_true(heaps[0].loose_bytes > 8 * MIB);
    assert_true(loose_bytes < (uint64_t)HEAP_COUNT * 8 * MIB);
    assert_true(heaps[HEAP_COUNT - 1].loose_bytes <= 1 * MIB);
    // What the others kept is wanted again, or goes: the last one may keep what it frees next.
    for (unsigned h = 0; h + 1 < HEAP_COUNT; h++) {
        heap_purge_slabs(&heaps[h], true);
    }
    for (unsigned i = 0; i < HEAP_BLOCKS; i += per_slab) {
        heap_put(&heaps[0], of_heap[0] + i, 1);
    }
    // But for what each has not told.
    assert_true(atomic_load_relaxed(&heap_sums.loose_bytes) <
                HEAP_COUNT * options.excess_bytes / 32);
    assert_true(atomic_load_relaxed(&heap_sums.used_bytes) < (uint64_t)HEAP_COUNT * 2 * MIB);
}

// Slabs that move take their bytes with them: a heap that lost them all, and is not heard of again, keeps no share.
static void test_sums_follow_slabs_that_move(void **state) {
    (void)state;
    static struct heap from, to;
    static void *of_heap[HEAP_BLOCKS];
    const uint64_t class_index = size_class_index(HEAP_CLASS_BYTES);
    const uint64_t untold_bytes = options.excess_bytes / 32;
    const uint64_t half_bytes = HEAP_BLOCKS / 2 * HEAP_CLASS_BYTES;
    page_map_init();
    heap_init(&from, 2);
    heap_init(&to, 3);
    for (unsigned got = 0; got < HEAP_BLOCKS;) {
        got += heap_take(&from, class_index, least_u64(63, HEAP_BLOCKS - got), of_heap + got);
    }
    for (unsigned i = 0; i < HEAP_BLOCKS; i += 2) {
        heap_put(&from, of_heap + i, 1);
    }
    while (heap_move_slab(&from, &to, class_index)) {
    }
    assert_int_equal(from.used_bytes + from.loose_bytes, 0);
    assert_int_equal(heap_take(&to, class_index, 1, of_heap), 1);
    assert_in_range(atomic_load_relaxed(&heap_sums.used_bytes), half_bytes - 3 * untold_bytes,
                    half_bytes + 3 * untold_bytes);
    assert_in_range(atomic_load_relaxed(&heap_sums.loose_bytes), half_bytes - 3 * untold_bytes,
                    half_bytes + 3 * untold_bytes);
}

// ---- Huge blocks ----

// A bound that waves of demand have raised falls while mappings are kept: an eighth in each delay.
static void test_raised_bound_decays(void **state) {
    (void)state;
    page_map_init();
    learner_start();
    options.purge_delay_ms = 500;
    void *block = huge_alloc(5 * MIB, PAGE_BYTES, false);
    assert_non_null(block);
    assert_true(huge_free(huge_find((uintptr_t)block), (uintptr_t)block));
    huge_table_state.excess.raise.bytes = 64 * MIB;
    fake_os_pass_ms(499);
    huge_purge(os_clock_ms(), false);
    assert_int_equal(huge_table_state.excess.raise.bytes, 56 * MIB);
    huge_purge(os_clock_ms(), false);  // many a tick in one delay
    huge_purge(os_clock_ms(), true);
    assert_int_equal(huge_table_state.excess.raise.bytes, 56 * MIB);
    fake_os_pass_ms(500);
    huge_purge(os_clock_ms(), false);
    assert_int_equal(huge_table_state.excess.raise.bytes, 49 * MIB);
}

// Once it is handed out again nothing is too much any more: the next frees go as they went before.
static void test_what_was_too_much_and_was_taken_again_is_forgotten(void **state) {
    (void)state;
    const uint64_t class_index = size_class_index(BLOCK_CLASS_BYTES);
    page_map_init();
    options.excess_bytes = 1 * MIB;
    options.purge_slab_block_min = 2 * BLOCK_CLASS_BYTES;  // nothing of it may go
    heap_init(&heap, 2);
    take_blocks(class_index);
    shuffle_blocks();
    const unsigned freed = put_until(0, 16 * MIB);
    assert_true(heap.keeps_too_much);
    for (unsigned got = 0; got < freed;) {
        got += heap_take(&heap, class_index, (unsigned)least_u64(63, freed - got), blocks + got);
    }
    assert_true(heap.loose_bytes < 1 * MIB);
    heap_put(&heap, blocks, 1);
    assert_false(heap.keeps_too_much);
    check_bytes();
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bound),
        cmocka_unit_test(test_what_is_wanted_again_raises_the_bound),
        cmocka_unit_test(test_clock_that_goes_back),
        cmocka_unit_test(test_without_the_learner_the_bound_stays),
        cmocka_unit_test(test_rows_are_of_one_writer),
        cmocka_unit_test(test_spike_goes_back_while_it_is_freed),
        cmocka_unit_test(test_without_the_learner_each_wave_is_paid_for),
        cmocka_unit_test(test_below_the_bound_nothing_goes),
        cmocka_unit_test(test_waves_are_paid_for_once),
        cmocka_unit_test(test_refused_purges_are_not_tried_at_every_free),
        cmocka_unit_test(test_sparse_slabs_go_back_while_they_are_freed),
        cmocka_unit_test(test_slabs_that_thin_out_are_purged_once_they_are_sparse),
        cmocka_unit_test(test_slabs_that_thin_out_by_whole_flushes),
        cmocka_unit_test(test_sparse_slabs_of_small_blocks_may_be_left_alone),
        cmocka_unit_test(test_what_must_stay_is_not_tried_at_every_free),
        cmocka_unit_test(test_slabs_and_runs_share_what_may_stay),
        cmocka_unit_test(test_runs_keep_their_part_whatever_slabs_keep),
        cmocka_unit_test(test_many_heaps_share_a_bound),
        cmocka_unit_test(test_sums_follow_slabs_that_move),
        cmocka_unit_test(test_raised_bound_decays),
        cmocka_unit_test(test_what_was_too_much_and_was_taken_again_is_forgotten),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
