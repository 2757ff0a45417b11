// Free pages of the arena that go back to the system: when, in how many calls, and what a refusal changes.
#include "isolate.h"

#include <string.h>

#include "config/counters.h"
#include "config/options.h"
#include "fake_os.h"
#include "plain_runs.h"
#include "space/arena.h"
#include "space/page_map.h"

static void test_purge_by_the_clock(void **state) {
    (void)state;
    page_map_init();
    options.purge_delay_ms = 500;
    struct run *first = take_plain(4);
    struct run *second = take_plain(4);
    take_plain(1);
    assert_int_equal(arena_purge_due(), UINT64_MAX);
    arena_give(first);
    assert_int_equal(arena_purge_due(), 0);
    uint64_t now_ms = 10000;
    assert_int_equal(arena_purge(now_ms, false), 0);  // starts the clock
    assert_int_equal(arena_purge_due(), 10500);
    arena_give(second);
    now_ms = 10500;
    assert_int_equal(arena_purge(now_ms, false), 4 * PAGE_BYTES);
    assert_int_equal(fake_os_purged_bytes(), 4 * PAGE_BYTES);
    assert_int_equal(dirty_bytes(), 4 * PAGE_BYTES);
    assert_int_equal(arena_purge_due(), 11000);
    now_ms = 11000;
    assert_int_equal(arena_purge(now_ms, false), 4 * PAGE_BYTES);
    assert_int_equal(dirty_bytes(), 0);
    assert_int_equal(arena_purge_due(), UINT64_MAX);
    assert_int_equal(arena_check(), 0);
}

static void test_shorter_delay_holds_at_once(void **state) {
    (void)state;
    page_map_init();
    options.purge_delay_ms = 3600000;
    struct run *run = take_plain(4);
    take_plain(1);
    arena_give(run);
    assert_int_equal(arena_purge(10000, false), 0);  // starts the clock
    assert_false(arena_purge_is_due(10500));
    options.purge_delay_ms = 500;
    assert_true(arena_purge_is_due(10500));
    assert_int_equal(arena_purge(10500, false), 4 * PAGE_BYTES);
    assert_false(arena_purge_is_due(3700000));
}

// Rounds are counted for as long as the process lives.
static void test_purges_after_very_many_rounds(void **state) {
    (void)state;
    page_map_init();
    options.purge_delay_ms = 500;
    arena_state.purge_round = UINT64_C(0x80000001);
    struct run *run = take_plain(4);
    take_plain(1);
    arena_give(run);
    assert_int_equal(arena_purge(10000, true), 4 * PAGE_BYTES);
}

static void test_purge_in_few_calls(void **state) {
    (void)state;
    page_map_init();
    struct run *parts[16];
    for (unsigned i = 0; i < 16; i++) {
        parts[i] = take_plain(4);
    }
    for (unsigned i = 0; i < 16; i++) {
        if (i != 7) {
            arena_give(parts[i]);
        }
    }
    const uint64_t calls = fake_os_calls(OS_MADVISE);
    assert_int_equal(arena_purge(os_clock_ms(), true), 60 * PAGE_BYTES);
    assert_int_equal(fake_os_calls(OS_MADVISE) - calls, 2);
}

static void test_no_delay_purges_at_once(void **state) {
    (void)state;
    page_map_init();
    options.purge_delay_ms = 0;
    struct run *first = take_plain(4);
    struct run *second = take_plain(4);
    arena_give(first);
    assert_int_equal(dirty_bytes(), 0);
    arena_shorten(second, 1);
    assert_int_equal(dirty_bytes(), 0);
    assert_int_equal(fake_os_purged_bytes(), 7 * PAGE_BYTES);
}

static void test_refused_purge_is_tried_again(void **state) {
    (void)state;
    page_map_init();
    struct run *run = take_plain(8);
    memset((void *)run->start, 1, 8 * PAGE_BYTES);
    take_plain(1);
    arena_give(run);
    fake_os_fail(OS_MADVISE, 1, false);
    assert_int_equal(arena_purge(os_clock_ms(), true), 0);
    assert_int_equal(arena_check(), 0);
    assert_int_equal(dirty_bytes(), 8 * PAGE_BYTES);
    assert_true(arena_purge_due() != UINT64_MAX);
    bool zeroed = true;
    run = arena_take(8, PAGE_BYTES, false, &zeroed);
    assert_false(zeroed);
    arena_give(run);
    assert_int_equal(arena_purge(os_clock_ms(), true), 8 * PAGE_BYTES);
    assert_int_equal(arena_check(), 0);
}

// Another thread's tick, in the middle of a purge of everything: once.
static bool ticked;

static void tick_once(enum os_call call, void *start, size_t bytes) {
    (void)start, (void)bytes;
    if (call == OS_MADVISE && !ticked) {
        ticked = true;
        arena_purge(os_clock_ms(), false);
    }
}

enum { WHOLE_COUNT = 8 };

static void make_dirty(unsigned count) {
    struct run *whole[WHOLE_COUNT];
    for (unsigned i = 0; i < count; i++) {
        whole[i] = take_plain(SUPERSLAB_PAGES);
    }
    for (unsigned i = 0; i < count; i++) {
        arena_give(whole[i]);
    }
}

static void test_a_tick_does_not_end_a_purge_of_everything(void **state) {
    (void)state;
    page_map_init();
    options.excess_bytes = UINT64_C(1) << 30;
    make_dirty(WHOLE_COUNT);
    assert_int_equal(dirty_bytes(), WHOLE_COUNT * SUPERSLAB_BYTES);
    fake_os_watch(tick_once);
    assert_int_equal(arena_purge(os_clock_ms(), true), WHOLE_COUNT * SUPERSLAB_BYTES);
    fake_os_watch(NULL);
    assert_true(ticked);
    assert_int_equal(dirty_bytes(), 0);
    assert_int_equal(arena_check(), 0);
}

// What others free while a purge runs.
static void free_more(enum os_call call, void *start, size_t bytes) {
    (void)start, (void)bytes;
    if (call == OS_MADVISE) {
        options.excess_bytes = UINT64_C(1) << 30;
        make_dirty(3);
        options.excess_bytes = 8 * MIB;
    }
}

static void test_only_what_the_system_refuses_may_stay(void **state) {
    (void)state;
    page_map_init();
    options.excess_bytes = 8 * MIB;
    fake_os_watch(free_more);
    make_dirty(WHOLE_COUNT);
    fake_os_watch(NULL);
    assert_true(dirty_bytes() > 8 * MIB);
    assert_int_equal(arena_state.excess.accepted_bytes, 0);
    assert_int_equal(arena_check(), 0);
}

static uint64_t purged_bytes(void) {
    return atomic_load_relaxed(&process_counters.value[COUNTER_purged_bytes]);
}

static void test_what_goes_without_a_delay_is_counted(void **state) {
    (void)state;
    page_map_init();
    options.purge_delay_ms = 0;
    const uint64_t before = purged_bytes();
    arena_give(take_plain(4));
    assert_int_equal(purged_bytes() - before, 4 * PAGE_BYTES);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_purge_by_the_clock),
        cmocka_unit_test(test_shorter_delay_holds_at_once),
        cmocka_unit_test(test_purges_after_very_many_rounds),
        cmocka_unit_test(test_purge_in_few_calls),
        cmocka_unit_test(test_no_delay_purges_at_once),
        cmocka_unit_test(test_refused_purge_is_tried_again),
        cmocka_unit_test(test_a_tick_does_not_end_a_purge_of_everything),
        cmocka_unit_test(test_only_what_the_system_refuses_may_stay),
        cmocka_unit_test(test_what_goes_without_a_delay_is_counted),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
