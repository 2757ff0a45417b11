// What the simulated machine adds to the contract of os.h: failures on command, limits, and breaches
// of the contract that it must notice.
#include "isolate.h"

#include <string.h>

#include "fake_os.h"

#define PAGE ((size_t)4096)

static void test_nth_call_fails_once(void **state) {
    (void)state;
    fake_os_fail(OS_MMAP, 3, false);
    assert_non_null(os_map(PAGE, PAGE));
    char *second = os_map(PAGE, PAGE);
    assert_true(os_unmap(second, PAGE));  // of another kind: does not count
    assert_null(os_map(PAGE, PAGE));
    assert_int_equal(fake_os_refused(), 1);
    assert_non_null(os_map(PAGE, PAGE));
    assert_int_equal(fake_os_calls(OS_MMAP), 4);
}

static void test_failing_from_then_on(void **state) {
    (void)state;
    char *start = os_map(4 * PAGE, PAGE);
    fake_os_fail(FAKE_ANY, 2, true);
    assert_true(os_purge(start, PAGE));
    assert_false(os_purge(start, PAGE));
    assert_false(os_guard(start, PAGE));
    assert_false(os_commit(start, PAGE));
    assert_false(os_resize(start, 4 * PAGE, PAGE));
    assert_null(os_map(PAGE, PAGE));
    assert_null(os_reserve(PAGE));
    assert_null(os_reserve_aligned(PAGE, PAGE));
    assert_false(os_unmap(start, 4 * PAGE));
    assert_int_equal(fake_os_state(start), FAKE_WRITABLE);
    fake_os_mend();
    assert_true(os_unmap(start, 4 * PAGE));
    assert_int_equal(fake_os_refused(), 8);
}

static void test_refused_purge_leaves_unknown_contents(void **state) {
    (void)state;
    char *start = os_map(4 * PAGE, PAGE);
    memset(start, 1, 4 * PAGE);
    fake_os_fail(OS_MADVISE, 1, false);
    assert_false(os_purge(start, 4 * PAGE));
    assert_int_equal(start[0], 0);
    assert_int_equal(start[4 * PAGE - 1], 1);
    assert_int_equal(fake_os_purged_bytes(), 0);
}

static void test_random_fails_only_when_meant(void **state) {
    (void)state;
    fake_os_fail(FAKE_ANY, 1, true);
    os_random();
    assert_int_equal(fake_os_refused(), 0);
    fake_os_fail(OS_RANDOM, 1, false);
    os_random();
    assert_int_equal(fake_os_refused(), 1);
}

static void test_clock_moves_by_hand(void **state) {
    (void)state;
    const uint64_t start_ms = os_clock_ms();
    assert_int_equal(os_clock_ms(), start_ms);
    fake_os_pass_ms(250);
    assert_int_equal(os_clock_ms(), start_ms + 250);
}

static void test_limits(void **state) {
    (void)state;
    fake_os_limit_bytes(10 * PAGE);
    char *start = os_map(8 * PAGE, PAGE);
    assert_non_null(start);
    assert_null(os_map(4 * PAGE, PAGE));
    assert_false(os_resize(start, 8 * PAGE, 12 * PAGE));
    assert_true(os_resize(start, 8 * PAGE, 10 * PAGE));
    fake_os_limit_bytes(0);
    fake_os_limit_ranges(3);
    assert_true(os_guard(start + PAGE, PAGE));
    assert_int_equal(fake_os_range_count(), 3);
    assert_false(os_guard(start + 3 * PAGE, PAGE));
    assert_null(os_map(PAGE, PAGE));
    fake_os_limit_ranges(0);
    assert_true(os_commit(start + PAGE, PAGE));
    assert_int_equal(fake_os_range_count(), 1);
}

static void test_states_and_bytes(void **state) {
    (void)state;
    char *reserved = os_reserve(16 * PAGE);
    char *mapped = os_map(8 * PAGE, PAGE);
    assert_true(os_commit(reserved, PAGE));
    assert_true(os_guard(mapped + 2 * PAGE, 3 * PAGE));
    assert_int_equal(fake_os_bytes(FAKE_READABLE), 15 * PAGE);
    assert_int_equal(fake_os_bytes(FAKE_WRITABLE), 6 * PAGE);
    assert_int_equal(fake_os_bytes(FAKE_INACCESSIBLE), 3 * PAGE);
    assert_int_equal(fake_os_state(mapped + 2 * PAGE), FAKE_INACCESSIBLE);
    assert_int_equal(fake_os_state(mapped + 8 * PAGE), FAKE_UNMAPPED);
    os_advise_huge_pages(mapped, PAGE, OS_HUGE_PAGES_NEVER);
    assert_int_equal(fake_os_wish(mapped), OS_HUGE_PAGES_NEVER);
    assert_int_equal(fake_os_wish(mapped + PAGE), OS_HUGE_PAGES_DEFAULT);
    fake_os_block_behind(mapped);
}

// Whether a call that breaks the contract is noticed, and refused.
#define assert_breach(call)                               \
    do {                                                  \
        const uint64_t before = fake_os_breaches();       \
        assert_false(call);                               \
        assert_int_equal(fake_os_breaches(), before + 1); \
    } while (0)

static void test_breaches_are_noticed(void **state) {
    (void)state;
    fake_os_tolerate();
    char *start = os_map(4 * PAGE, PAGE);
    char *next = os_map(4 * PAGE, PAGE);
    assert_ptr_equal(next, start + 4 * PAGE);
    char *reserved = os_reserve(4 * PAGE);

    assert_breach(os_unmap(next + 4 * PAGE + 4 * PAGE, PAGE));
    assert_breach(os_unmap(start + 1, PAGE));
    assert_breach(os_unmap(start, PAGE + 1));
    assert_breach(os_unmap(start, 0));
    assert_breach(os_unmap(start, 5 * PAGE));  // of two mappings
    assert_breach(os_purge(start + 3 * PAGE, 2 * PAGE));
    assert_breach(os_purge(reserved, PAGE));
    assert_breach(os_commit((char *)(16 * PAGE), PAGE));
    assert_breach(os_guard(reserved + 3 * PAGE, 2 * PAGE));
    assert_breach(os_resize(start, 5 * PAGE, 6 * PAGE));
    assert_breach(os_resize(start, 4 * PAGE, 0));
    assert_false(os_resize(start + PAGE, PAGE, 2 * PAGE));  // its own mapping goes on behind
    assert_breach(os_move(start, 4 * PAGE, reserved, 4 * PAGE, false) == OS_MOVED);
    assert_breach(os_map(0, PAGE) != NULL);
    assert_breach(os_map(PAGE, 3 * PAGE) != NULL);
    assert_breach(os_map(PAGE, 64) != NULL);
    assert_breach(os_map(100, PAGE) != NULL);
    char *destination = os_reserve_aligned(4 * PAGE, PAGE);
    assert_breach(os_move(start, 4 * PAGE, destination, 2 * PAGE, false) == OS_MOVED);
    assert_breach(os_move(start, 4 * PAGE, destination, 4 * PAGE, true) == OS_MOVED);

    // Moved pages are a piece of their own, though of one mapping with those behind.
    assert_int_equal(os_move(start, 2 * PAGE, next, 2 * PAGE, true), OS_MOVED);
    assert_breach(os_unmap(start, 4 * PAGE));
    assert_breach(os_purge(start, PAGE));
    assert_breach(os_resize(next, 4 * PAGE, 5 * PAGE));
    assert_breach(os_move(next, 4 * PAGE, destination, 4 * PAGE, false) == OS_MOVED);
    assert_true(os_purge(next, 4 * PAGE));
    assert_int_equal(os_move(next + 2 * PAGE, 2 * PAGE, destination, 4 * PAGE, false), OS_MOVED);
    assert_true(os_unmap(next, 2 * PAGE));
}

static int break_the_contract(const void *context) {
    (void)context;
    os_unmap((char *)PAGE, PAGE);
    return 0;
}

static void test_breach_ends_the_process(void **state) {
    (void)state;
    expect_abort(break_the_contract);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nth_call_fails_once),
        cmocka_unit_test(test_failing_from_then_on),
        cmocka_unit_test(test_refused_purge_leaves_unknown_contents),
        cmocka_unit_test(test_random_fails_only_when_meant),
        cmocka_unit_test(test_clock_moves_by_hand),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_states_and_bytes),
        cmocka_unit_test(test_breaches_are_noticed),
        cmocka_unit_test(test_breach_ends_the_process),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
