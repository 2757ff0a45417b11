// Where the arena or the huge blocks come to more than ever before, free memory of the other kind makes room.
#include "isolate.h"

#include "base/bits.h"
#include "config/counters.h"
#include "config/options.h"
#include "fake_os.h"
#include "heap/huge.h"
#include "space/arena.h"
#include "space/arena_purge.h"
#include "space/page_map.h"

static void start(void) {
    page_map_init();
}

static struct huge *make(size_t bytes) {
    void *block = huge_alloc(bytes, PAGE_BYTES, false);
    assert_non_null(block);
    return huge_find((uintptr_t)block);
}

static void drop(struct huge *huge) {
    assert_true(huge_free(huge, huge->start));
    assert_int_equal(huge_check(), 0);
}

static uint64_t kept_bytes(void) {
    struct huge_totals totals;
    huge_totals(&totals);
    return totals.kept_bytes;
}

static struct run *take_run(size_t bytes) {
    uint64_t used;
    struct run *run = arena_take((unsigned)(bytes / PAGE_BYTES), PAGE_BYTES, false, &used);
    assert_non_null(run);
    return run;
}

static uint64_t dirty_bytes(void) {
    struct arena_totals arena;
    arena_totals(&arena);
    return arena.dirty_bytes;
}

// Kept mappings do not serve the arena: where it comes to more than ever before, as much of them goes.
static void test_growth_of_the_arena_unmaps_as_much(void **state) {
    (void)state;
    start();
    struct huge *last = make(3 * MIB);
    struct huge *first = make(10 * MIB);
    const char *place = (const char *)first->start;
    struct run *run = take_run(2 * MIB);
    drop(first);
    huge_make_room();
    assert_int_equal(kept_bytes(), 10 * MIB);  // what grew before does not count
    struct run *longer = take_run(MIB);
    huge_make_room();
    assert_int_equal(kept_bytes(), 9 * MIB);
    assert_int_equal(fake_os_state(place + 9 * MIB - 1), FAKE_WRITABLE);
    assert_int_equal(fake_os_state(place + 9 * MIB), FAKE_UNMAPPED);
    arena_give(run);
    take_run(2 * MIB);
    huge_make_room();
    assert_int_equal(kept_bytes(), 9 * MIB);  // no more than before
    assert_true(arena_extend(longer, 2 * MIB / PAGE_BYTES));
    drop(last);  // as a block becomes one, what grew until then leaves of the others
    assert_int_equal(kept_bytes(), 11 * MIB);
    huge_make_room();
    assert_int_equal(kept_bytes(), 11 * MIB);
    take_run(4 * MIB);
    take_run(4 * MIB);
    take_run(4 * MIB);
    huge_make_room();
    assert_false(huge_has_kept());
    assert_int_equal(huge_check(), 0);
}

// Nor do free pages of the arena serve huge blocks.
static void test_growth_of_huge_blocks_purges_as_much(void **state) {
    (void)state;
    start();
    struct run *first = take_run(SUPERSLAB_BYTES);
    struct run *second = take_run(SUPERSLAB_BYTES);
    arena_give(first);
    arena_give(second);
    assert_int_equal(dirty_bytes(), 2 * SUPERSLAB_BYTES);
    struct huge *block = make(3 * MIB);
    assert_int_equal(dirty_bytes(), SUPERSLAB_BYTES);  // superslab by superslab
    assert_int_equal(atomic_load_relaxed(&process_counters.value[COUNTER_purged_bytes]),
                     SUPERSLAB_BYTES);
    drop(block);
    block = make(3 * MIB);
    assert_int_equal(dirty_bytes(), SUPERSLAB_BYTES);  // no more than before
    assert_true(huge_resize(block, 5 * MIB));
    assert_int_equal(dirty_bytes(), 0);
    assert_int_equal(arena_check(), 0);
}

// Also where each step is less than a page of the arena.
static void test_growth_by_small_steps_purges_as_much(void **state) {
    (void)state;
    start();
    struct huge *block = make(3 * MIB);
    struct run *first = take_run(2 * MIB);
    take_run(MIB);
    arena_give(first);
    assert_int_equal(dirty_bytes(), 2 * MIB);
    for (size_t grown = 4096; grown < PAGE_BYTES; grown += 4096) {
        assert_true(huge_resize(block, 3 * MIB + grown));
        assert_int_equal(dirty_bytes(), 2 * MIB);
    }
    assert_true(huge_resize(block, 3 * MIB + PAGE_BYTES));
    assert_int_equal(dirty_bytes(), 0);  // superslab by superslab
    assert_int_equal(arena_check(), 0);
}

// It is the sum that counts: huge blocks that were as much once make room where they are beside more runs than then.
static void test_as_many_huge_blocks_beside_more_runs_purge(void **state) {
    (void)state;
    start();
    drop(make(6 * MIB));
    huge_purge(0, true);
    struct run *first = take_run(SUPERSLAB_BYTES);
    struct run *second = take_run(SUPERSLAB_BYTES);
    arena_give(first);
    arena_give(second);
    make(5 * MIB);
    assert_int_equal(dirty_bytes(), 0);  // superslab by superslab
    assert_int_equal(arena_check(), 0);
}

// And where all together is no more than it was, dirty pages stay for the runs to come.
static void test_more_huge_blocks_beside_fewer_runs_purge_nothing(void **state) {
    (void)state;
    start();
    struct run *first = take_run(SUPERSLAB_BYTES);
    struct run *second = take_run(SUPERSLAB_BYTES);
    struct run *third = take_run(MIB);
    arena_give(first);
    arena_give(second);
    arena_purge(os_clock_ms(), ARENA_PURGE_ALL);
    arena_give(third);
    struct huge *block = make(6 * MIB);
    assert_int_equal(dirty_bytes(), MIB);
    assert_true(huge_resize(block, 9 * MIB));
    assert_int_equal(dirty_bytes(), 0);
    assert_int_equal(arena_check(), 0);
}

// What is kept is part of the sum: a block that takes it again is no growth.
static void test_block_of_what_is_kept_purges_nothing(void **state) {
    (void)state;
    start();
    struct huge *kept = make(3 * MIB);
    make(4 * MIB);
    drop(kept);
    assert_int_equal(kept_bytes(), 3 * MIB);
    arena_give(take_run(SUPERSLAB_BYTES));
    make(3 * MIB);
    assert_false(huge_has_kept());
    assert_int_equal(dirty_bytes(), SUPERSLAB_BYTES);
    assert_int_equal(arena_check(), 0);
}

// Who takes runs and huge blocks by turns pays for that once: what made room and is wanted again may stay from then on.
static void test_turns_of_runs_and_huge_blocks_purge_once(void **state) {
    (void)state;
    start();
    uint64_t purged_bytes[3];
    for (unsigned i = 0; i < ARRAY_COUNT(purged_bytes); i++) {
        struct run *run = take_run(MIB);
        arena_give(run);
        drop(make(3 * MIB));
        huge_purge(0, true);
        purged_bytes[i] = atomic_load_relaxed(&process_counters.value[COUNTER_purged_bytes]);
    }
    assert_int_equal(purged_bytes[0], MIB);
    assert_int_equal(purged_bytes[2], purged_bytes[0]);
    assert_int_equal(dirty_bytes(), MIB);
    assert_int_equal(arena_check(), 0);
}

static void test_turns_of_a_clock_that_goes_back_purge_each_time(void **state) {
    (void)state;
    start();
    fake_os_pass_ms(100000);
    for (unsigned i = 1; i <= 3; i++) {
        fake_os_pass_ms(-UINT64_C(5000));
        arena_give(take_run(MIB));
        drop(make(3 * MIB));
        huge_purge(0, true);
        assert_int_equal(atomic_load_relaxed(&process_counters.value[COUNTER_purged_bytes]),
                         i * MIB);
    }
    assert_int_equal(arena_check(), 0);
}

// What would have gone by its age until it was wanted again gives no leave to stay.
static void test_turns_that_are_long_apart_purge_each_time(void **state) {
    (void)state;
    start();
    for (unsigned i = 1; i <= 3; i++) {
        fake_os_pass_ms(options.purge_delay_ms + 1);
        arena_give(take_run(MIB));
        drop(make(3 * MIB));
        huge_purge(0, true);
        assert_int_equal(atomic_load_relaxed(&process_counters.value[COUNTER_purged_bytes]),
                         i * MIB);
    }
    assert_int_equal(arena_check(), 0);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_growth_of_the_arena_unmaps_as_much),
        cmocka_unit_test(test_growth_of_huge_blocks_purges_as_much),
        cmocka_unit_test(test_growth_by_small_steps_purges_as_much),
        cmocka_unit_test(test_as_many_huge_blocks_beside_more_runs_purge),
        cmocka_unit_test(test_more_huge_blocks_beside_fewer_runs_purge_nothing),
        cmocka_unit_test(test_block_of_what_is_kept_purges_nothing),
        cmocka_unit_test(test_turns_of_runs_and_huge_blocks_purge_once),
        cmocka_unit_test(test_turns_that_are_long_apart_purge_each_time),
        cmocka_unit_test(test_turns_of_a_clock_that_goes_back_purge_each_time),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
