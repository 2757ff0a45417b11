// The learner's policy, on windows of which none has both refills and flushes of a class, on full nodes, and on raises that have no room.
#include "isolate.h"

#include <string.h>

#include "policy_windows.h"

// Whole nodes move, of which the target lets each reach the slabs: that is too many where they take a part of the time, and only there.
static void test_frequent_slow_paths_are_short_of_less(void **state_of_test) {
    (void)state_of_test;
    for (int is_frequent = 0; is_frequent <= 1; is_frequent++) {
        memset(&state, 0, sizeof state);
        memset(&window, 0, sizeof window);
        start();
        open_class(SIZE_CLASS_64, 64 * KIB);
        struct policy_signals *signals = &window.classes[SIZE_CLASS_64];
        set_events(SIZE_CLASS_64, 64, 64);
        signals->refilled_blocks = signals->flushed_blocks = 64 * 63;
        assert_int_equal(steps(1, is_frequent ? 1 << 20 : (1 << 20) + (1 << 14)), is_frequent);
        assert_int_equal(state.is_settled, false);
        if (is_frequent) {
            assert_int_equal(decisions[0].signal, POLICY_SIGNAL_churn);
            continue;
        }
        // Nor does it ask for the clock again at once.
        assert_int_equal(steps(10, 1 << 21), 0);
        assert_true(state.is_settled);
    }
}

// ---- Cycles of many windows

#define BULK_CLASS SIZE_CLASS_64
// Blocks that come, and then go.
#define BULK_BLOCKS (1920 * KIB / 64)
// Slow paths of a window, and the time of a block that moves, in and out of the cache.
#define BULK_EVENTS 16
#define BLOCK_NS 4

static unsigned timed_windows, all_windows;

// A thread's windows while it works on bulk: nobody looks at the clock unless the policy asks. `used`: slow paths of one kind.
static void pass_half(unsigned windows, bool comes, uint64_t rest_ns) {
    struct policy_signals *signals = &window.classes[BULK_CLASS];
    for (unsigned i = 0; i < windows; i++) {
        set_events(BULK_CLASS, comes ? BULK_EVENTS : 0, comes ? 0 : BULK_EVENTS);
        signals->refilled_blocks = signals->refills * NODE_BLOCKS_MAX;
        signals->flushed_blocks = signals->flushes * NODE_BLOCKS_MAX;
        // The program computes as its blocks come: slow paths are half as dense then.
        const uint64_t ns = (uint64_t)BULK_EVENTS * NODE_BLOCKS_MAX * BLOCK_NS * (comes ? 2 : 1);
        const uint32_t grown = signals->capacity;
        const bool is_timed = !state.is_settled;
        timed_windows += is_timed;
        all_windows++;
        const unsigned count = steps(1, is_timed ? ns + (i == 0 ? rest_ns : 0) : 0);
        // A raise is grown into by and by; less is less at once.
        if (count != 0 && signals->capacity > grown) {
            signals->capacity = grown;
        }
    }
}

// `spares`: what is cached needs no slow path; else a raise gains nothing.
static void bulk(unsigned rounds, bool spares) {
    struct policy_signals *signals = &window.classes[BULK_CLASS];
    for (unsigned round = 0; round < rounds; round++) {
        for (int comes = 1; comes >= 0; comes--) {
            if (!comes) {
                signals->capacity = (uint32_t)least_u64(signals->limit, 2 * signals->capacity);
            }
            const uint64_t cached = spares ? least_u64(signals->capacity, BULK_BLOCKS) : 0;
            const uint64_t moved = BULK_BLOCKS - cached;
            pass_half((unsigned)(moved / NODE_BLOCKS_MAX / BULK_EVENTS), comes != 0,
                      cached * BLOCK_NS);
        }
    }
}

static void start_bulk(void) {
    start();
    limits.class_bytes_max[CLASS_TINY] = 2 * MIB;
    limits.step_percent[CLASS_TINY] = 700;
    open_class(BULK_CLASS, 256 * KIB);
    state.is_settled = true;
}

static void test_bulk_is_judged_by_whole_cycles(void **state_of_test) {
    (void)state_of_test;
    start_bulk();
    bulk(7, true);
    assert_int_equal(window.classes[BULK_CLASS].limit, 2 * MIB / 64);
    bulk(20, true);
    assert_int_equal(capacity(BULK_CLASS), 2 * MIB / 64);
    assert_int_equal(made, 1);
}

static void test_bulk_that_gains_nothing_is_taken_back(void **state_of_test) {
    (void)state_of_test;
    start_bulk();
    bulk(2000, false);
    assert_in_range(made, 4, 40);
    assert_in_range(timed_windows, 1, all_windows / 20);
    for (unsigned i = 0; i < 20 && capacity(BULK_CLASS) != 256 * KIB / 64; i++) {
        bulk(1, false);
    }
    assert_int_equal(capacity(BULK_CLASS), 256 * KIB / 64);
}

// Halves that are longer than a cycle may be: nothing is wanted, nor is the clock asked for.
static void test_halves_without_end_tell_nothing(void **state_of_test) {
    (void)state_of_test;
    start_bulk();
    for (unsigned round = 0; round < 200; round++) {
        pass_half(100, true, 0);
        pass_half(100, false, 0);
    }
    assert_int_equal(made, 0);
    assert_int_equal(timed_windows, 0);
}

// Where a raise is wanted and the next cycle has no end, the clock runs no longer than that may be.
static void test_the_clock_does_not_wait_for_ever(void **state_of_test) {
    (void)state_of_test;
    start_bulk();
    pass_half(20, true, 0);
    pass_half(20, false, 0);
    assert_int_equal(timed_windows, 0);
    pass_half(200, true, 0);
    assert_int_equal(timed_windows, 64 + 3);
    // Nor is it asked for again at the next cycle, but once the pause ends.
    assert_true(state.is_settled);
    assert_int_equal(made, 0);
}

// A class that is used without slow paths between its rounds: these are what a raise is wanted for, whatever comes between.
static void test_what_is_wanted_outlasts_quiet_windows(void **state_of_test) {
    (void)state_of_test;
    start();
    open_class(SIZE_CLASS_16384, 256 * KIB);
    state.is_settled = true;
    for (unsigned round = 0; round < 4 && made == 0; round++) {
        set_events(SIZE_CLASS_16384, 64, 64);
        steps(1, state.is_settled ? 0 : 1 << 20);
        set_events(SIZE_CLASS_16384, 0, 0);
        for (unsigned i = 0; i < 5 && made == 0; i++) {
            steps(1, state.is_settled ? 0 : 1 << 20);
        }
    }
    assert_int_equal(made, 1);
    assert_int_equal(decisions[0].signal, POLICY_SIGNAL_churn);
}

// Looks at a class that meets its target do not lengthen what follows a raise in vain.
static void test_looks_are_no_raises_in_vain(void **state_of_test) {
    (void)state_of_test;
    start_bulk();
    struct policy_signals *signals = &window.classes[BULK_CLASS];
    set_events(BULK_CLASS, 64, 64);
    signals->refilled_blocks = signals->flushed_blocks = 64 * NODE_BLOCKS_MAX;
    assert_int_equal(steps(5000, 1 << 22), 0);
    assert_int_equal(state.classes[BULK_CLASS].raise.length, 0);
    steps(1100, 1 << 17);
    assert_in_range(made, 2, 20);
    assert_int_equal(state.classes[BULK_CLASS].looks, 0);
}

// Begins a trial.
static void raise(void) {
    start();
    open_class(SIZE_CLASS_16384, 256 * KIB);
    set_events(SIZE_CLASS_16384, 20, 20);
    assert_int_equal(steps(1, 1 << 20), 1);
    assert_int_equal(capacity(SIZE_CLASS_16384), 32);
}

// Of what pays so well that nothing goes back any more no cycle ends.
static void test_a_raise_that_ends_flushes_stays(void **state_of_test) {
    (void)state_of_test;
    raise();
    set_events(SIZE_CLASS_16384, 5, 0);
    assert_int_equal(steps(200, 1 << 20), 0);
    assert_true(state.is_settled);
    assert_int_equal(capacity(SIZE_CLASS_16384), 32);
}

static void test_a_raise_that_shows_nothing_for_long_goes(void **state_of_test) {
    (void)state_of_test;
    raise();
    set_events(SIZE_CLASS_16384, 40, 0);
    assert_int_equal(steps(63, 1 << 20), 0);
    assert_false(state.is_settled);
    assert_int_equal(steps(1, 1 << 20), 1);
    assert_int_equal(decisions[0].signal, POLICY_SIGNAL_idle);
    assert_int_equal(decisions[0].value, 0);
    assert_int_equal(capacity(SIZE_CLASS_16384), 16);
}

// A cycle that was not timed throughout judges nothing, nor does it end the trial.
static void test_a_cycle_without_time_judges_nothing(void **state_of_test) {
    (void)state_of_test;
    raise();
    set_events(SIZE_CLASS_16384, 20, 20);
    assert_int_equal(steps(2, 1 << 20), 0);
    for (unsigned i = 0; i < 20; i++) {
        set_events(SIZE_CLASS_16384, 20, 0);
        assert_int_equal(steps(1, 0), 0);
        set_events(SIZE_CLASS_16384, 0, 20);
        assert_int_equal(steps(1, 1 << 20), 0);
    }
    assert_false(state.is_settled);
    assert_int_equal(capacity(SIZE_CLASS_16384), 32);
}

// What was seen before a class was at rest is nothing to compare a raise with.
static void test_a_rate_from_before_a_rest_is_forgotten(void **state_of_test) {
    (void)state_of_test;
    start();
    open_class(SIZE_CLASS_16384, 1 * MIB);
    set_events(SIZE_CLASS_16384, 100, 100);
    assert_int_equal(steps(3, 1 << 18), 0);
    set_events(SIZE_CLASS_16384, 0, 0);
    window.classes[SIZE_CLASS_16384].used = false;
    assert_int_equal(steps(8, 1 << 20), 0);
    open_class(SIZE_CLASS_16384, 256 * KIB);
    set_events(SIZE_CLASS_16384, 100, 100);
    assert_int_equal(steps(1, 1 << 20), 1);
    // As many slow paths as then, fewer than before the rest: no gain.
    assert_int_equal(steps(3, 1 << 20), 0);
    assert_int_equal(steps(1, 1 << 20), 1);
    assert_int_equal(decisions[0].signal, POLICY_SIGNAL_gain);
    assert_int_equal(decisions[0].value, 100);
}

// ---- What a raise is of

// Below its limit a class grows by itself: no trial takes the credit for that, and no other class pays for more.
static void test_what_a_class_reaches_by_itself_is_no_raise(void **state_of_test) {
    (void)state_of_test;
    start_bulk();
    window.classes[BULK_CLASS].capacity = 64 * KIB / 64;
    set_events(BULK_CLASS, 64, 64);
    assert_int_equal(steps(20, 1 << 17), 0);
    window.classes[BULK_CLASS].capacity = 256 * KIB / 64;
    assert_int_equal(steps(1, 1 << 17), 1);
    assert_int_equal(decisions[0].to, 2 * MIB / 64);
}

// Where eight times as much has no room, twice as much may have.
static void test_a_raise_takes_what_room_there_is(void **state_of_test) {
    (void)state_of_test;
    start_bulk();
    limits.budget_bytes_max = window.budget_bytes = 1 * MIB;
    set_events(BULK_CLASS, 64, 64);
    assert_int_equal(steps(1, 1 << 17), 1);
    assert_int_equal(decisions[0].to, 512 * KIB / 64);
    // And where that has none either, the clock rests but for the ends of ever longer pauses.
    memset(&state, 0, sizeof state);
    unsigned unsettled = 0;
    for (unsigned i = 0; i < 1000; i++) {
        assert_int_equal(steps(1, 1 << 17), 0);
        unsettled += !state.is_settled;
    }
    assert_in_range(unsettled, 1, 50);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frequent_slow_paths_are_short_of_less),
        cmocka_unit_test(test_bulk_is_judged_by_whole_cycles),
        cmocka_unit_test(test_bulk_that_gains_nothing_is_taken_back),
        cmocka_unit_test(test_halves_without_end_tell_nothing),
        cmocka_unit_test(test_the_clock_does_not_wait_for_ever),
        cmocka_unit_test(test_what_is_wanted_outlasts_quiet_windows),
        cmocka_unit_test(test_looks_are_no_raises_in_vain),
        cmocka_unit_test(test_a_raise_that_ends_flushes_stays),
        cmocka_unit_test(test_a_raise_that_shows_nothing_for_long_goes),
        cmocka_unit_test(test_a_cycle_without_time_judges_nothing),
        cmocka_unit_test(test_a_rate_from_before_a_rest_is_forgotten),
        cmocka_unit_test(test_what_a_class_reaches_by_itself_is_no_raise),
        cmocka_unit_test(test_a_raise_takes_what_room_there_is),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
