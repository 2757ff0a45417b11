// Which superslabs ask for huge pages, and how memory behind them goes back.
#include "isolate.h"

#include <string.h>

#include "base/bits.h"
#include "config/options.h"
#include "control/learner.h"
#include "fake_os.h"
#include "space/arena.h"
#include "space/arena_purge.h"
#include "space/huge_pages.h"
#include "space/space_hooks.h"
#include "thread/fork.h"

enum {
    SMALL = SMALL_HEAP_BYTES / SUPERSLAB_BYTES,
    RUN_COUNT = 4 * HUGE_PAGES_PROBE,
    HOST_PAGE_BYTES = 4096
};

static struct run *runs[RUN_COUNT];

// A superslab that one run fills, `parts` of 16 of which are touched.
static void take(unsigned index, unsigned parts) {
    uint64_t used;
    runs[index] = arena_take(SUPERSLAB_PAGES, PAGE_BYTES, false, &used);
    assert_non_null(runs[index]);
    for (size_t at = 0; at < SUPERSLAB_BYTES / 16 * parts; at += HOST_PAGE_BYTES) {
        *(char *)(runs[index]->start + at) = 1;
    }
}

static void give_back(struct run *run) {
    arena_give(run);
    arena_purge(0, ARENA_PURGE_ALL);
}

static enum os_huge_pages wish_of(unsigned index) {
    return fake_os_wish((void *)runs[index]->start);
}

static void test_wishes_of_the_option(void **state) {
    (void)state;
    page_map_init();
    const struct {
        uint64_t option;
        enum os_huge_pages wish;
    } rows[] = {
        {huge_pages_never, OS_HUGE_PAGES_NEVER},
        {huge_pages_always, OS_HUGE_PAGES_ALWAYS},
        {huge_pages_system, OS_HUGE_PAGES_DEFAULT},
    };
    for (unsigned i = 0; i < ARRAY_COUNT(rows); i++) {
        options.huge_pages = rows[i].option;
        take(i, 0);
        assert_int_equal(wish_of(i), rows[i].wish);
        assert_int_equal(fake_os_wish((char *)runs[i]->start + SUPERSLAB_BYTES - 1), rows[i].wish);
        assert_int_equal(huge_pages_wish_of_block(), rows[i].wish);
    }
    options.huge_pages = huge_pages_adaptive;
    assert_int_equal(huge_pages_wish_of_block(), OS_HUGE_PAGES_DEFAULT);
}

static void start(void) {
    page_map_init();
    learner_start();
}

// The static rule: nobody is asked, and nothing looked at.
static void test_without_the_learner_all_refuse(void **state) {
    (void)state;
    start();
    for (unsigned i = 0; i < RUN_COUNT; i++) {
        if (i == RUN_COUNT / 2) {
            atomic_store_relaxed(&space_hooks.growth, NULL);
        }
        options.learn = i >= RUN_COUNT / 2;
        take(i, 16);
        assert_int_equal(wish_of(i), OS_HUGE_PAGES_NEVER);
    }
    assert_int_equal(fake_os_calls(OS_MINCORE), 0);
    assert_int_equal(atomic_load_relaxed(&decision_log.decided), 0);
}

static void test_learner_may_be_switched_off_and_on(void **state) {
    (void)state;
    start();
    for (unsigned i = 0; i <= SMALL + 3; i++) {
        options.learn = i == SMALL || i == SMALL + 3;
        take(i, 16);
        assert_int_equal(wish_of(i), options.learn ? OS_HUGE_PAGES_ALWAYS : OS_HUGE_PAGES_NEVER);
    }
}

static void expect_first_to_ask(unsigned superslab) {
    for (unsigned i = 0; i <= superslab; i++) {
        take(i, 16);
        assert_int_equal(wish_of(i), i < superslab ? OS_HUGE_PAGES_NEVER : OS_HUGE_PAGES_ALWAYS);
    }
}

static void test_more_heaps_are_small_for_longer(void **state) {
    (void)state;
    start();
    for (unsigned i = 0; i < SMALL_HEAPS_MOST - 1; i++) {
        huge_pages_count_heap();
    }
    expect_first_to_ask((SMALL_HEAPS_MOST - 1) * SMALL);
}

static void test_many_heaps_are_small_for_no_longer(void **state) {
    (void)state;
    start();
    for (unsigned i = 0; i < 100; i++) {
        huge_pages_count_heap();
    }
    expect_first_to_ask(SMALL_HEAPS_MOST * SMALL);
}

// One row for a change of mind, none for each superslab.
static void test_decisions_are_logged(void **state) {
    (void)state;
    start();
    for (unsigned i = 0; i < RUN_COUNT; i++) {
        take(i, i < 2 * SMALL ? 16 : 1);
    }
    assert_int_equal(atomic_load_relaxed(&decision_log.decided), 2);
    for (unsigned number = 1; number <= 2; number++) {
        struct decision *row = &decision_log.decisions[number];
        assert_int_equal(atomic_load_relaxed(&row->number), number);
        assert_int_equal(atomic_load_relaxed(&row->knob), POLICY_KNOB_huge_pages);
        assert_int_equal(atomic_load_relaxed(&row->signal), POLICY_SIGNAL_resident);
        assert_int_equal(atomic_load_relaxed(&row->heap), 0);
        assert_int_equal(atomic_load_relaxed(&row->class_index), SIZE_CLASS_COUNT);
        assert_int_equal(atomic_load_relaxed(&row->to), number % 2);
        assert_int_equal(atomic_load_relaxed(&row->ms), os_clock_ms());
    }
    assert_int_equal(atomic_load_relaxed(&decision_log.decisions[1].value), 1000);
}

static void test_dense_heap_asks_once_it_is_large(void **state) {
    (void)state;
    start();
    for (unsigned i = 0; i < RUN_COUNT; i++) {
        take(i, 16);
        const bool refuses = i < SMALL || (i + 1) % HUGE_PAGES_PROBE == 0;
        assert_int_equal(wish_of(i), refuses ? OS_HUGE_PAGES_NEVER : OS_HUGE_PAGES_ALWAYS);
    }
}

static bool was_tried(unsigned index) {
    return page_map_superslab(runs[index]->start)->huge_pages == OS_HUGE_PAGES_ALWAYS;
}

// Where the first touch of a huge page takes long, the superslab that was tried refuses from then on, and others are tried ever more
// seldom.
static void test_slow_huge_pages_are_not_asked_for(void **state) {
    (void)state;
    start();
    fake_os_touch_ns(HUGE_PAGE_SLOW_NS);
    unsigned tried = 0;
    for (unsigned i = 0; i < RUN_COUNT / 2; i++) {
        take(i, 16);
        assert_int_equal(wish_of(i), OS_HUGE_PAGES_NEVER);
        assert_int_equal(fake_os_wish((char *)runs[i]->start + SUPERSLAB_BYTES - 1),
                         OS_HUGE_PAGES_NEVER);
        tried += was_tried(i);
    }
    assert_true(was_tried(SMALL));
    assert_in_range(tried, 2, 5);
    const struct decision *row = &decision_log.decisions[2];
    assert_int_equal(atomic_load_relaxed(&row->knob), POLICY_KNOB_huge_pages);
    assert_int_equal(atomic_load_relaxed(&row->to), 0);
    assert_int_equal(atomic_load_relaxed(&row->signal), POLICY_SIGNAL_touch);
    assert_int_equal(atomic_load_relaxed(&row->value), HUGE_PAGE_SLOW_NS);
    // They come back once the pause is over and a try was fast.
    fake_os_touch_ns(HUGE_PAGE_SLOW_NS - 1);
    unsigned asked = 0;
    for (unsigned i = RUN_COUNT / 2; i < RUN_COUNT; i++) {
        take(i, 16);
        asked += wish_of(i) == OS_HUGE_PAGES_ALWAYS;
    }
    assert_true(asked > 1);
    assert_int_equal(wish_of(RUN_COUNT - 2), OS_HUGE_PAGES_ALWAYS);
    assert_int_equal(arena_check(), 0);
}

// What the user wishes is not tried.
static void test_huge_pages_that_the_user_wishes_are_not_timed(void **state) {
    (void)state;
    start();
    options.huge_pages = huge_pages_always;
    fake_os_touch_ns(HUGE_PAGE_SLOW_NS);
    for (unsigned i = 0; i < HUGE_PAGES_PROBE; i++) {
        take(i, 16);
        assert_int_equal(wish_of(i), OS_HUGE_PAGES_ALWAYS);
    }
    assert_int_equal(atomic_load_relaxed(&decision_log.decided), 0);
}

static void test_sparse_heap_refuses(void **state) {
    (void)state;
    start();
    for (unsigned i = 0; i < HUGE_PAGES_PROBE; i++) {
        take(i, 14);
        assert_int_equal(wish_of(i), OS_HUGE_PAGES_NEVER);
    }
}

// A heap that grows without huge pages is looked at less often the larger it is, and still in time.
static void test_looks_are_few_where_nothing_is_found(void **state) {
    (void)state;
    start();
    for (unsigned i = 0; i < RUN_COUNT / 2; i++) {
        take(i, 14);
    }
    const uint64_t half = fake_os_calls(OS_MINCORE);
    assert_true(half > 0);
    for (unsigned i = RUN_COUNT / 2; i < 3 * RUN_COUNT / 4; i++) {
        take(i, 14);
    }
    // Every other one, at four superslabs each.
    assert_true(fake_os_calls(OS_MINCORE) - half <= RUN_COUNT / 4 / 2 * 4);
    unsigned asked = 0;
    for (unsigned i = 3 * RUN_COUNT / 4; i < RUN_COUNT; i++) {
        take(i, 16);
        asked += wish_of(i) == OS_HUGE_PAGES_ALWAYS;
    }
    assert_true(asked >= RUN_COUNT / 16);
    assert_int_equal(arena_check(), 0);
}

// The superslabs that go without show that the program has changed.
static void test_growth_that_becomes_sparse_is_noticed(void **state) {
    (void)state;
    start();
    unsigned asked = 0;
    for (unsigned i = 0; i < RUN_COUNT; i++) {
        take(i, i < SMALL ? 16 : 1);
        asked += wish_of(i) == OS_HUGE_PAGES_ALWAYS;
    }
    assert_true(asked > 0 && asked < HUGE_PAGES_PROBE);
    assert_int_equal(wish_of(RUN_COUNT - 1), OS_HUGE_PAGES_NEVER);
}

static void test_kernel_that_does_not_tell(void **state) {
    (void)state;
    start();
    fake_os_fail(OS_MINCORE, 1, true);
    for (unsigned i = 0; i < SMALL + 2; i++) {
        take(i, 16);
        assert_int_equal(wish_of(i), OS_HUGE_PAGES_NEVER);
    }
}

// A superslab that was given back and is used again is a new one.
static void test_reuse_is_judged_anew(void **state) {
    (void)state;
    start();
    for (unsigned i = 0; i <= SMALL; i++) {
        take(i, 16);
    }
    const uintptr_t start = runs[SMALL]->start;
    assert_int_equal(wish_of(SMALL), OS_HUGE_PAGES_ALWAYS);
    give_back(runs[SMALL]);
    for (unsigned i = 0; i < SMALL; i++) {
        assert_true(os_purge((void *)runs[i]->start, SUPERSLAB_BYTES / 2));
    }
    take(SMALL, 1);
    assert_int_equal(runs[SMALL]->start, start);
    assert_int_equal(wish_of(SMALL), OS_HUGE_PAGES_NEVER);
    assert_int_equal(arena_check(), 0);
}

static void test_huge_pages_are_split_before_a_part_goes(void **state) {
    (void)state;
    page_map_init();
    uint64_t used;
    options.huge_pages = huge_pages_never;
    struct run *refused = arena_take(SUPERSLAB_PAGES / 2, PAGE_BYTES, false, &used);
    assert_non_null(arena_take(SUPERSLAB_PAGES / 2, PAGE_BYTES, false, &used));
    options.huge_pages = huge_pages_always;
    struct run *asked = arena_take(SUPERSLAB_PAGES / 2, PAGE_BYTES, false, &used);
    assert_non_null(asked);
    give_back(refused);
    assert_int_equal(fake_os_split_bytes(), 0);
    give_back(asked);
    assert_int_equal(fake_os_split_bytes(), SUPERSLAB_BYTES / 2);
}

// A large dense heap of superslabs of two runs each: those from SMALL on, but for one, ask.
static struct run *halves[2 * RUN_COUNT];

static void take_halves(void) {
    start();
    for (unsigned i = 0; i < RUN_COUNT - 1; i++) {
        for (unsigned half = 0; half < 2; half++) {
            uint64_t used;
            struct run *run = arena_take(SUPERSLAB_PAGES / 2, PAGE_BYTES, false, &used);
            assert_non_null(run);
            for (size_t at = 0; at < SUPERSLAB_BYTES / 2; at += HOST_PAGE_BYTES) {
                *(char *)(run->start + at) = 1;
            }
            halves[2 * i + half] = run;
        }
        runs[i] = halves[2 * i];
    }
    assert_int_equal(wish_of(SMALL), OS_HUGE_PAGES_ALWAYS);
}

// The system would fill the hole again; the other half is split further when it goes.
static void test_superslab_with_a_hole_refuses_until_it_is_used_anew(void **state) {
    (void)state;
    take_halves();
    const uintptr_t hollow = halves[2 * SMALL]->start;
    give_back(halves[2 * SMALL]);
    assert_int_equal(wish_of(SMALL), OS_HUGE_PAGES_NEVER);
    assert_int_equal(fake_os_wish((char *)hollow + SUPERSLAB_BYTES - 1), OS_HUGE_PAGES_NEVER);
    assert_int_equal(wish_of(SMALL + 1), OS_HUGE_PAGES_ALWAYS);
    const uint64_t calls = fake_os_calls(OS_MADVISE);
    const size_t split_bytes = fake_os_split_bytes();
    give_back(halves[2 * SMALL + 1]);
    assert_int_equal(fake_os_split_bytes(), split_bytes + SUPERSLAB_BYTES / 2);
    // Told once: the split and the purge alone.
    assert_int_equal(fake_os_calls(OS_MADVISE), calls + 2);
    take(SMALL, 16);
    assert_int_equal(runs[SMALL]->start, hollow);
    assert_int_equal(wish_of(SMALL), OS_HUGE_PAGES_ALWAYS);
    assert_int_equal(arena_check(), 0);
}

// One that is unmapped leaves its share of HOLLOW_MOST to others, not when its descriptor is used again.
static void test_unmapped_superslab_is_not_hollow(void **state) {
    (void)state;
    take_halves();
    const uintptr_t hollow = halves[2 * SMALL]->start;
    struct superslab *superslab = page_map_superslab(hollow);
    give_back(halves[2 * SMALL]);
    assert_int_equal(atomic_load_relaxed(&superslab->hollow), 1);
    for (unsigned i = 0; i < 2 * (RUN_COUNT - 1); i++) {
        if (i != 2 * SMALL) {
            arena_give(halves[i]);
        }
    }
    arena_purge(0, ARENA_PURGE_ALL);
    assert_null(page_map_superslab(hollow));
    assert_int_equal(atomic_load_relaxed(&superslab->hollow), 0);
}

// A large dense heap of superslabs of four runs each. Returns those of one that asks.
static struct run **take_quarters(void) {
    static struct run *quarters[RUN_COUNT][4];
    start();
    for (unsigned i = 0; i <= SMALL; i++) {
        for (unsigned quarter = 0; quarter < 4; quarter++) {
            uint64_t used;
            struct run *run = arena_take(SUPERSLAB_PAGES / 4, PAGE_BYTES, false, &used);
            assert_non_null(run);
            memset((void *)run->start, 1, SUPERSLAB_BYTES / 4);
            quarters[i][quarter] = run;
        }
        runs[i] = quarters[i][0];
    }
    assert_int_equal(wish_of(SMALL), OS_HUGE_PAGES_ALWAYS);
    return quarters[SMALL];
}

// How many bytes were split before a run went.
static uint64_t split_for(struct run *run) {
    const uint64_t split_bytes = fake_os_split_bytes();
    arena_give(run);
    arena_purge(0, ARENA_PURGE_ALL);
    return fake_os_split_bytes() - split_bytes;
}

// No huge page comes again in a superslab that refuses since: each half has one at most.
static void test_each_huge_page_is_split_once(void **state) {
    (void)state;
    struct run **quarters = take_quarters();
    assert_int_equal(split_for(quarters[0]), SUPERSLAB_BYTES / 4);
    const uint64_t calls = fake_os_calls(OS_MADVISE);
    assert_int_equal(split_for(quarters[1]), 0);
    assert_int_equal(fake_os_calls(OS_MADVISE), calls + 1);
    assert_int_equal(split_for(quarters[2]), SUPERSLAB_BYTES / 4);
    assert_int_equal(split_for(quarters[3]), 0);
    // Used anew it asks, and has some again.
    const uintptr_t place = runs[SMALL]->start;
    uint64_t used;
    struct run *first = arena_take(SUPERSLAB_PAGES / 2, PAGE_BYTES, false, &used);
    assert_non_null(first);
    assert_int_equal(first->start, place);
    assert_int_equal(wish_of(SMALL), OS_HUGE_PAGES_ALWAYS);
    assert_int_equal(split_for(arena_take(SUPERSLAB_PAGES / 4, PAGE_BYTES, false, &used)),
                     SUPERSLAB_BYTES / 4);
    assert_int_equal(arena_check(), 0);
}

// Of 32 MiB, where the machine's pages have 16 KiB: the first part that goes splits all that the superslab has.
static void test_longer_huge_page_is_split_once(void **state) {
    (void)state;
    fake_os_set_huge_page_bytes(32 * MIB);
    struct run **quarters = take_quarters();
    assert_int_equal(split_for(quarters[1]), SUPERSLAB_BYTES / 4);
    assert_int_equal(split_for(quarters[0]), 0);
    assert_int_equal(split_for(quarters[3]), 0);
    assert_int_equal(arena_check(), 0);
}

// While both processes have a huge page the system does not split it.
static void test_huge_pages_that_a_fork_shares_are_tried_again(void **state) {
    (void)state;
    struct run **quarters = take_quarters();
    assert_int_equal(split_for(quarters[0]), SUPERSLAB_BYTES / 4);
    fork_prepare();
    fork_parent();
    assert_int_equal(split_for(quarters[1]), 0);  // was split before
    assert_int_equal(split_for(quarters[2]), SUPERSLAB_BYTES / 4);
    assert_int_equal(split_for(quarters[3]), SUPERSLAB_BYTES / 4);
}

// What is wholly given back has no rest to make huge pages of.
static void test_superslab_that_goes_whole_has_no_hole(void **state) {
    (void)state;
    start();
    for (unsigned i = 0; i <= SMALL; i++) {
        take(i, 16);
    }
    give_back(runs[SMALL]);
    assert_int_equal(wish_of(SMALL), OS_HUGE_PAGES_ALWAYS);
}

// Who asked for them everywhere gets them.
static void test_always_stays_always(void **state) {
    (void)state;
    page_map_init();
    options.huge_pages = huge_pages_always;
    uint64_t used;
    struct run *first = arena_take(SUPERSLAB_PAGES / 2, PAGE_BYTES, false, &used);
    runs[0] = arena_take(SUPERSLAB_PAGES / 2, PAGE_BYTES, false, &used);
    assert_non_null(first);
    assert_non_null(runs[0]);
    give_back(first);
    assert_int_equal(wish_of(0), OS_HUGE_PAGES_ALWAYS);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wishes_of_the_option),
        cmocka_unit_test(test_without_the_learner_all_refuse),
        cmocka_unit_test(test_learner_may_be_switched_off_and_on),
        cmocka_unit_test(test_more_heaps_are_small_for_longer),
        cmocka_unit_test(test_many_heaps_are_small_for_no_longer),
        cmocka_unit_test(test_decisions_are_logged),
        cmocka_unit_test(test_dense_heap_asks_once_it_is_large),
        cmocka_unit_test(test_slow_huge_pages_are_not_asked_for),
        cmocka_unit_test(test_huge_pages_that_the_user_wishes_are_not_timed),
        cmocka_unit_test(test_sparse_heap_refuses),
        cmocka_unit_test(test_looks_are_few_where_nothing_is_found),
        cmocka_unit_test(test_growth_that_becomes_sparse_is_noticed),
        cmocka_unit_test(test_kernel_that_does_not_tell),
        cmocka_unit_test(test_reuse_is_judged_anew),
        cmocka_unit_test(test_huge_pages_are_split_before_a_part_goes),
        cmocka_unit_test(test_superslab_with_a_hole_refuses_until_it_is_used_anew),
        cmocka_unit_test(test_unmapped_superslab_is_not_hollow),
        cmocka_unit_test(test_each_huge_page_is_split_once),
        cmocka_unit_test(test_longer_huge_page_is_split_once),
        cmocka_unit_test(test_huge_pages_that_a_fork_shares_are_tried_again),
        cmocka_unit_test(test_superslab_that_goes_whole_has_no_hole),
        cmocka_unit_test(test_always_stays_always),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
