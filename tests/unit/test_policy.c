// The learner's policy, on made-up windows, on adversarial ones, and on windows that were recorded.
#include "isolate.h"

#include <stdio.h>
#include <string.h>

#include "policy_windows.h"

static void test_groups(void **state_of_test) {
    (void)state_of_test;
    assert_int_equal(class_group_of(SIZE_CLASS_16), CLASS_TINY);
    assert_int_equal(class_group_of(SIZE_CLASS_1024), CLASS_TINY);
    assert_int_equal(class_group_of(SIZE_CLASS_1152), CLASS_MID);
    assert_int_equal(class_group_of(SIZE_CLASS_32768), CLASS_MID);
    assert_int_equal(class_group_of(SIZE_CLASS_40960), CLASS_LARGE);
}

static void test_a_class_that_churns_is_raised(void **state_of_test) {
    (void)state_of_test;
    start();
    open_class(SIZE_CLASS_16384, 256 * KIB);
    set_events(SIZE_CLASS_16384, 64, 64);
    assert_int_equal(step(), 1);
    assert_int_equal(decisions[0].from, 16);
    assert_int_equal(decisions[0].to, 32);
    assert_int_equal(decisions[0].signal, POLICY_SIGNAL_churn);
    assert_int_equal(decisions[0].value, 128 * 1000 / (64 * 16 + 64 * 8));
}

static void test_no_reason_no_raise(void **state_of_test) {
    (void)state_of_test;
    start();
    open_class(SIZE_CLASS_16384, 256 * KIB);
    // One way only, or the other, however long; too seldom; often enough hits.
    set_events(SIZE_CLASS_16384, 128, 0);
    assert_int_equal(steps(64, 1 << 20), 0);
    set_events(SIZE_CLASS_16384, 0, 128);
    assert_int_equal(steps(200, 1 << 20), 0);
    set_events(SIZE_CLASS_16384, 1, 1);
    open_class(SIZE_CLASS_64, 256 * KIB);
    set_events(SIZE_CLASS_64, 100, 0);
    assert_int_equal(step(), 0);
    set_events(SIZE_CLASS_16384, 0, 0);
    open_class(SIZE_CLASS_64, 128 * KIB);
    set_events(SIZE_CLASS_64, 60, 2);
    assert_int_equal(step(), 0);
    // The same with a worse share of hits.
    memset(&state, 0, sizeof state);
    open_class(SIZE_CLASS_64, 1 * KIB);
    set_events(SIZE_CLASS_64, 60, 2);
    assert_int_equal(step(), 1);
}

static void test_a_raise_that_gains_stays(void **state_of_test) {
    (void)state_of_test;
    start();
    open_class(SIZE_CLASS_16384, 256 * KIB);
    uint64_t cpu_ns = 1 << 20;
    for (unsigned i = 0; i < 20; i++) {
        set_events(SIZE_CLASS_16384, 64, 64);
        if (steps(1, cpu_ns) != 0) {
            cpu_ns *= 3;  // slow paths get rarer
        }
    }
    assert_int_equal(capacity(SIZE_CLASS_16384), 1 * MIB / 16384);
    assert_int_equal(made, 2);
    assert_int_equal(steps(1000, cpu_ns), 0);
}

static void test_a_raise_that_gains_nothing_is_taken_back(void **state_of_test) {
    (void)state_of_test;
    start();
    open_class(SIZE_CLASS_16384, 256 * KIB);
    unsigned count = 0;
    for (unsigned i = 0; i < 10000; i++) {
        set_events(SIZE_CLASS_16384, 64, 64);
        count += steps(1, 1 << 20);
    }
    // Each trial and its end are two decisions, each pause twice as long as the one before.
    assert_in_range(count, 12, 20);
    for (unsigned i = 0; i < 100 && capacity(SIZE_CLASS_16384) != 16; i++) {
        steps(1, 1 << 20);
    }
    assert_int_equal(capacity(SIZE_CLASS_16384), 16);
}

// Slow paths that come far more often after a raise: the program has begun to work faster, as after its first touches.
static void test_a_change_says_nothing_of_a_raise(void **state_of_test) {
    (void)state_of_test;
    start();
    open_class(SIZE_CLASS_16384, 256 * KIB);
    set_events(SIZE_CLASS_16384, 64, 64);
    assert_int_equal(steps(1, 1 << 20), 1);
    // Taken back at once, and begun again when two windows have shown what it is compared with.
    assert_int_equal(steps(2, 1 << 18), 0);
    assert_int_equal(steps(1, 1 << 18), 1);
    assert_int_equal(decisions[0].signal, POLICY_SIGNAL_gain);
    assert_int_equal(decisions[0].value, 400);
    assert_int_equal(capacity(SIZE_CLASS_16384), 16);
    assert_false(state.is_settled);
    assert_int_equal(steps(2, 1 << 18), 0);
    assert_false(state.is_settled);
    assert_int_equal(steps(1, 1 << 18), 1);
    assert_int_equal(capacity(SIZE_CLASS_16384), 32);
    // It pays, and the next one begins.
    assert_int_equal(steps(3, 1 << 19), 1);
    assert_int_equal(capacity(SIZE_CLASS_16384), 64);
}

// Fills the budget with classes at 256 KiB.
static void fill(uint64_t first, uint64_t end) {
    for (uint64_t i = first; i < end; i++) {
        open_class(i, 256 * KIB);
    }
}

static void test_idle_classes_give_first(void **state_of_test) {
    (void)state_of_test;
    start();
    fill(SIZE_CLASS_16, SIZE_CLASS_16 + 15);
    for (uint64_t i = SIZE_CLASS_16; i < SIZE_CLASS_16 + 15; i++) {
        window.classes[i].used = false;
    }
    assert_int_equal(steps(8, 1 << 20), 0);
    open_class(SIZE_CLASS_32768, 256 * KIB);
    set_events(SIZE_CLASS_32768, 64, 64);
    step();
    assert_int_equal(decisions[0].signal, POLICY_SIGNAL_idle);
    assert_int_equal(decisions[0].to, 8 * KIB / 16);
    assert_int_equal(capacity(SIZE_CLASS_32768), 16);
    assert_int_equal(window.budget_bytes, BUDGET_BYTES);
}

static void test_classes_that_have_enough_keep_it(void **state_of_test) {
    (void)state_of_test;
    start();
    fill(SIZE_CLASS_16, SIZE_CLASS_16 + 15);  // in use without a slow path
    assert_int_equal(steps(100, 1 << 20), 0);
    open_class(SIZE_CLASS_32768, 256 * KIB);
    set_events(SIZE_CLASS_32768, 64, 64);
    step();
    assert_int_equal(decisions[0].knob, POLICY_KNOB_budget);
    assert_int_equal(decisions[0].signal, POLICY_SIGNAL_demand);
    assert_int_equal(capacity(SIZE_CLASS_16), 16 * KIB);
    assert_int_equal(capacity(SIZE_CLASS_32768), 16);
}

// The reserve is for raises that pay.
static void test_a_raise_in_vain_leaves_the_budget(void **state_of_test) {
    (void)state_of_test;
    start();
    fill(SIZE_CLASS_16, SIZE_CLASS_16 + 15);  // in use without a slow path
    open_class(SIZE_CLASS_16384, 128 * KIB);
    set_events(SIZE_CLASS_16384, 64, 64);
    for (unsigned i = 0; i < 1000; i++) {
        steps(1, 1 << 20);
        assert_true(window.budget_bytes == BUDGET_BYTES || capacity(SIZE_CLASS_16384) == 16);
    }
    assert_in_range(made, 12, 40);
    assert_int_equal(window.budget_bytes, BUDGET_BYTES);
}

// What classes have by then stays, and what another raise that is on trial may still come to need.
static void test_a_raise_in_vain_beside_another(void **state_of_test) {
    (void)state_of_test;
    start();
    fill(SIZE_CLASS_16, SIZE_CLASS_16 + 15);
    open_class(SIZE_CLASS_16384, 128 * KIB);
    open_class(SIZE_CLASS_32768, 128 * KIB);
    set_events(SIZE_CLASS_16384, 64, 64);
    set_events(SIZE_CLASS_32768, 64, 64);
    steps(1, 1 << 20);
    assert_int_equal(capacity(SIZE_CLASS_16384), 16);
    assert_int_equal(capacity(SIZE_CLASS_32768), 8);
    // The second has not grown to all of it, and then comes to rest.
    window.classes[SIZE_CLASS_32768].capacity = 5;
    set_events(SIZE_CLASS_32768, 0, 0);
    window.classes[SIZE_CLASS_32768].used = false;
    assert_int_equal(steps(3, 1 << 20), 0);
    assert_true(window.budget_bytes > BUDGET_BYTES);
    assert_int_equal(steps(1, 1 << 20), 2);
    assert_int_equal(capacity(SIZE_CLASS_16384), 8);
    assert_int_equal(capacity(SIZE_CLASS_32768), 5);
    const uint64_t promised = 3 * 32768;
    assert_true(spent() + promised > BUDGET_BYTES);
    assert_int_equal(window.budget_bytes, spent() + promised);
}

static void test_capacity_moves_to_where_it_saves_most(void **state_of_test) {
    (void)state_of_test;
    start();
    window.budget_bytes = limits.budget_bytes_max;
    fill(SIZE_CLASS_16, SIZE_CLASS_16 + 31);
    set_events(SIZE_CLASS_16, 3, 3);
    open_class(SIZE_CLASS_16384, 128 * KIB);
    set_events(SIZE_CLASS_16384, 61, 61);
    const uint64_t before = spent();
    assert_true(before + 128 * KIB > limits.budget_bytes_max);
    step();
    assert_int_equal(decisions[0].signal, POLICY_SIGNAL_density);
    assert_int_equal(capacity(SIZE_CLASS_16), 8 * KIB);
    assert_int_equal(capacity(SIZE_CLASS_16384), 16);
    assert_true(spent() <= limits.budget_bytes_max);
}

// The most that a raise may need is more than all classes that are not in use, the budget's reserve and the
// least useful class have together.
static void test_nothing_is_taken_for_a_raise_that_cannot_be(void **state_of_test) {
    (void)state_of_test;
    start();
    window.budget_bytes = limits.budget_bytes_max - 16 * KIB;
    fill(SIZE_CLASS_16, SIZE_CLASS_16 + 30);
    open_class(SIZE_CLASS_64, 16 * KIB);
    set_events(SIZE_CLASS_16, 3, 3);
    open_class(SIZE_CLASS_32768, 1 * MIB);
    window.classes[SIZE_CLASS_64].used = false;
    assert_int_equal(steps(8, 1 << 20), 0);
    set_events(SIZE_CLASS_32768, 61, 61);
    const uint64_t before = spent();
    // 8 KiB of idle capacity, 16 KiB of reserve, 128 KiB of the victim, less than 1 MiB.
    struct policy_limits wide = limits;
    wide.class_bytes_max[class_group_of(SIZE_CLASS_32768)] = 2 * MIB;
    assert_true(before + 1 * MIB > limits.budget_bytes_max + 136 * KIB);
    assert_int_equal(decide(&wide), 0);
    // Once there is room for it, it is made.
    for (uint64_t i = SIZE_CLASS_16 + 10; i < SIZE_CLASS_16 + 25; i++) {
        open_class(i, 8 * KIB);
    }
    unsigned count = 0;
    for (unsigned i = 0; i < 3; i++) {
        count += decide(&wide);
    }
    assert_in_range(count, 1, POLICY_DECISIONS_MAX);
}

// ---- Adversaries: few decisions, and never more than the budget (step)

static void test_two_classes_take_turns(void **state_of_test) {
    (void)state_of_test;
    for (unsigned period = 1; period <= 64; period *= 2) {
        memset(&state, 0, sizeof state);
        memset(&window, 0, sizeof window);
        start();
        made = 0;
        fill(SIZE_CLASS_4096, SIZE_CLASS_4096 + 20);
        for (unsigned i = 0; i < 20000; i++) {
            const uint64_t hot = SIZE_CLASS_16384 + (i / period) % 2;
            set_events(SIZE_CLASS_16384, 0, 0);
            set_events(SIZE_CLASS_16384 + 1, 0, 0);
            window.classes[SIZE_CLASS_16384].used = window.classes[SIZE_CLASS_16384 + 1].used =
                false;
            set_events(hot, 64, 64);
            // Time runs so that each raise looks like a loss, or a gain, by turns.
            steps(1, (uint64_t)1 << (16 + (i / 3) % 8));
        }
        assert_in_range(made, 1, 300);
    }
}

// A class that is at work for three windows of six: the end of its turn is no gain of the raise that is on trial.
static void test_a_turn_that_ends_is_no_gain(void **state_of_test) {
    (void)state_of_test;
    start();
    open_class(SIZE_CLASS_16384, 256 * KIB);
    for (unsigned i = 0; i < 600; i++) {
        const uint32_t events = i % 6 < 3 ? 64 : 0;
        window.classes[SIZE_CLASS_16384].used = false;
        set_events(SIZE_CLASS_16384, events, events);
        steps(1, 1 << 20);
        assert_in_range(capacity(SIZE_CLASS_16384), 16, 32);
    }
    assert_int_equal(capacity(SIZE_CLASS_16384), 16);
}

// A class that is not used any more shows nothing of its raise, which does not wait for ever.
static void test_a_raise_that_nobody_uses_is_taken_back(void **state_of_test) {
    (void)state_of_test;
    start();
    open_class(SIZE_CLASS_16384, 256 * KIB);
    set_events(SIZE_CLASS_16384, 64, 64);
    assert_int_equal(steps(1, 1 << 20), 1);
    set_events(SIZE_CLASS_16384, 0, 0);
    window.classes[SIZE_CLASS_16384].used = false;
    assert_int_equal(steps(7, 1 << 20), 0);
    assert_false(state.is_settled);
    assert_int_equal(steps(1, 1 << 20), 1);
    assert_int_equal(decisions[0].signal, POLICY_SIGNAL_idle);
    assert_int_equal(capacity(SIZE_CLASS_16384), 16);
    assert_int_equal(steps(100, 1 << 20), 0);
    assert_true(state.is_settled);
}

// Nor is it against the raise: however often the class's turn ends, it is tried again before long, and not at each turn.
static void test_turns_that_end_are_no_raises_in_vain(void **state_of_test) {
    (void)state_of_test;
    start();
    open_class(SIZE_CLASS_16384, 256 * KIB);
    unsigned raises = 0;
    unsigned windows = 0;
    for (unsigned turn = 0; turn < 400; turn++) {
        window.classes[SIZE_CLASS_16384].used = false;
        set_events(SIZE_CLASS_16384, 64, 64);
        const unsigned decided = steps(1, 1 << 20);
        windows = decided == 0 ? windows + 13 : 0;
        assert_in_range(windows, 0, 256 + 13);
        raises += decided;
        set_events(SIZE_CLASS_16384, 0, 0);
        window.classes[SIZE_CLASS_16384].used = false;
        steps(12, 1 << 20);
        assert_int_equal(capacity(SIZE_CLASS_16384), 16);
    }
    assert_in_range(raises, 400 * 13 / (256 + 13), 40);
}

// A raise that the class has not grown by shows nothing either: its limit falls, so that it does not grow to it later, without a trial.
static void test_a_raise_that_is_not_taken_up_goes(void **state_of_test) {
    (void)state_of_test;
    for (int is_used = 0; is_used <= 1; is_used++) {
        memset(&state, 0, sizeof state);
        memset(&window, 0, sizeof window);
        start();
        open_class(SIZE_CLASS_16384, 256 * KIB);
        set_events(SIZE_CLASS_16384, 64, 64);
        assert_int_equal(steps(1, 1 << 20), 1);
        window.classes[SIZE_CLASS_16384].capacity = 16;
        assert_int_equal(window.classes[SIZE_CLASS_16384].limit, 32);
        set_events(SIZE_CLASS_16384, 0, 0);
        window.classes[SIZE_CLASS_16384].used = is_used != 0;
        assert_int_equal(steps(12, 1 << 20), 1);
        assert_int_equal(decisions[0].signal, POLICY_SIGNAL_idle);
        assert_int_equal(decisions[0].value, is_used ? 0 : 8);
        assert_int_equal(decisions[0].from, 32);
        assert_int_equal(decisions[0].to, 16);
        assert_int_equal(window.classes[SIZE_CLASS_16384].limit, 16);
    }
}

// A program that always works faster while a raise is on trial: pauses get longer as after raises that gain nothing.
static void test_changes_without_end(void **state_of_test) {
    (void)state_of_test;
    start();
    open_class(SIZE_CLASS_16384, 256 * KIB);
    unsigned count = 0;
    for (unsigned i = 0; i < 10000; i++) {
        set_events(SIZE_CLASS_16384, 64, 64);
        count += steps(1, capacity(SIZE_CLASS_16384) == 16 ? 1 << 20 : 1 << 18);
    }
    assert_in_range(count, 16, 26);
}

static void test_random_windows(void **state_of_test) {
    (void)state_of_test;
    uint64_t random = 20261121;
    start();
    fill(SIZE_CLASS_16, SIZE_CLASS_COUNT);
    for (uint64_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        window.classes[i].capacity = window.classes[i].limit = 1;
    }
    for (unsigned i = 0; i < 20000; i++) {
        for (uint64_t c = 0; c < SIZE_CLASS_COUNT; c++) {
            window.classes[c].used = random_next(&random) % 4 != 0;
            const bool moves = random_next(&random) % 8 == 0;
            set_events(c, moves ? (uint32_t)(random_next(&random) % 20) : 0,
                       moves ? (uint32_t)(random_next(&random) % 20) : 0);
        }
        steps(1, random_next(&random) % (1 << 24));
    }
    // Each class is paused 16, 32, ... windows after what was taken back or away.
    assert_in_range(made, SIZE_CLASS_COUNT, SIZE_CLASS_COUNT * 40);
    const unsigned first = made;
    made = 0;
    steps(1000, 1 << 20);
    assert_true(made < first / 10);
}

static void test_extreme_figures(void **state_of_test) {
    (void)state_of_test;
    start();
    for (uint64_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        window.classes[i] = (struct policy_signals){.refills = UINT16_MAX,
                                                    .flushes = UINT16_MAX,
                                                    .refilled_blocks = 1,
                                                    .flushed_blocks = 1,
                                                    .capacity = 1,
                                                    .limit = UINT32_MAX,
                                                    .used = true};
    }
    steps(10, 0);
    steps(10, UINT64_MAX);
    // Without limits to go by nothing is given; what is taken back is a trial's.
    const struct policy_limits none = {0};
    for (unsigned i = 0; i < 10; i++) {
        window.cpu_ns = (i % 2 != 0) ? UINT64_MAX : 0;
        const unsigned count = decide(&none);
        for (unsigned d = 0; d < count; d++) {
            assert_int_equal(decisions[d].knob, POLICY_KNOB_cap);
            assert_true(decisions[d].to < decisions[d].from);
            apply(&decisions[d]);
        }
    }
}

// A window without the processor's time decides nothing, whatever it shows; it tells whether one with it is needed.
static void test_a_window_without_time_decides_nothing(void **state_of_test) {
    (void)state_of_test;
    start();
    open_class(SIZE_CLASS_4096, 64 * KIB);
    assert_int_equal(steps(3, 0), 0);
    assert_true(state.is_settled);
    set_events(SIZE_CLASS_4096, 100, 100);
    assert_int_equal(steps(3, 0), 0);
    assert_false(state.is_settled);
    // It is raised, and on trial: windows without time judge nothing.
    assert_int_equal(steps(1, 1 << 20), 1);
    assert_false(state.is_settled);
    set_events(SIZE_CLASS_4096, 0, 0);
    assert_int_equal(steps(10, 0), 0);
    assert_false(state.is_settled);
    assert_int_equal(steps(14, 1 << 20), 0);
    assert_true(state.is_settled);
    assert_int_equal(capacity(SIZE_CLASS_4096), 128 * KIB / 4096);
}

// ---- Recorded windows: `hakmem inspect --signals` of a program (docs/LEARNING.md)

// What was decided while the program ran stands in the windows that follow: a replay must decide the same.
static void check_what_became_of(const struct policy_window *next, unsigned count) {
    uint64_t budget = window.budget_bytes;
    for (unsigned i = 0; i < count; i++) {
        const struct policy_decision *decision = &decisions[i];
        if (decision->knob == POLICY_KNOB_budget) {
            budget = decision->to;
            continue;
        }
        const struct policy_signals *signals = &next->classes[decision->class_index];
        assert_true(!signals->used || signals->limit == decision->to ||
                    (is_handed_back(decision) && signals->limit > decision->to));
    }
    assert_int_equal(next->budget_bytes, budget);
    // And nothing else changed.
    for (uint64_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        bool decided = false;
        for (unsigned d = 0; d < count; d++) {
            decided |= decisions[d].class_index == i;
        }
        assert_true(decided || !next->classes[i].used || !window.classes[i].used ||
                    next->classes[i].limit == window.classes[i].limit);
    }
}

static void read_class(struct policy_window *next, const char *line) {
    unsigned bytes, used;
    struct policy_signals signals;
    assert_int_equal(sscanf(line, "class %u %u %u %u %u %u %u %u", &bytes, &signals.refills,
                            &signals.flushes, &signals.refilled_blocks, &signals.flushed_blocks,
                            &signals.capacity, &signals.limit, &used),
                     8);
    signals.used = used != 0;
    next->classes[size_class_index(bytes)] = signals;
}

static void test_recorded_windows(void **state_of_test) {
    (void)state_of_test;
    FILE *file = fopen(RECORDED, "r");
    assert_non_null(file);
    char line[200];
    unsigned count = 0, windows = 0;
    static struct policy_window next;
    while (fgets(line, sizeof line, file) != NULL) {
        unsigned long long cpu_ns, budget;
        if (sscanf(line, "window %llu %llu", &cpu_ns, &budget) == 2) {
            // A class that was not used has no row: it is as it was.
            next = window;
            for (uint64_t i = 0; i < SIZE_CLASS_COUNT; i++) {
                next.classes[i].used = false;
                next.classes[i].refills = next.classes[i].flushes = 0;
                next.classes[i].refilled_blocks = next.classes[i].flushed_blocks = 0;
            }
            for (unsigned i = 0; i < count; i++) {
                if (decisions[i].knob == POLICY_KNOB_cap) {
                    next.classes[decisions[i].class_index].limit = (uint32_t)decisions[i].to;
                }
            }
            next.cpu_ns = cpu_ns;
            next.budget_bytes = budget;
        } else if (strncmp(line, "class ", 6) == 0) {
            read_class(&next, line);
        } else if (strcmp(line, "end\n") == 0) {
            if (windows++ != 0) {
                check_what_became_of(&next, count);
            }
            window = next;
            count = decide(&limits);
            made += count;
        }
    }
    assert_in_range(windows, 5, 1000);
    assert_in_range(made, 20, 200);
    fclose(file);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_a_class_that_churns_is_raised),
        cmocka_unit_test(test_no_reason_no_raise),
        cmocka_unit_test(test_a_raise_that_gains_stays),
        cmocka_unit_test(test_a_raise_that_gains_nothing_is_taken_back),
        cmocka_unit_test(test_a_change_says_nothing_of_a_raise),
        cmocka_unit_test(test_a_window_without_time_decides_nothing),
        cmocka_unit_test(test_idle_classes_give_first),
        cmocka_unit_test(test_classes_that_have_enough_keep_it),
        cmocka_unit_test(test_a_raise_in_vain_leaves_the_budget),
        cmocka_unit_test(test_a_raise_in_vain_beside_another),
        cmocka_unit_test(test_capacity_moves_to_where_it_saves_most),
        cmocka_unit_test(test_nothing_is_taken_for_a_raise_that_cannot_be),
        cmocka_unit_test(test_two_classes_take_turns),
        cmocka_unit_test(test_a_turn_that_ends_is_no_gain),
        cmocka_unit_test(test_a_raise_that_nobody_uses_is_taken_back),
        cmocka_unit_test(test_turns_that_end_are_no_raises_in_vain),
        cmocka_unit_test(test_a_raise_that_is_not_taken_up_goes),
        cmocka_unit_test(test_changes_without_end),
        cmocka_unit_test(test_random_windows),
        cmocka_unit_test(test_extreme_figures),
        cmocka_unit_test(test_recorded_windows),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
