// The learner's policy of threads that follow one another: on recorded successions, on made-up and adversarial ones.
#include "isolate.h"

#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "control/policy_threads.h"

#define WINDOW 16

static struct policy_succession succession;
static unsigned decided;

// One thread that ended; what must always hold of what is decided.
static bool end(bool was_soon) {
    struct policy_decision decision;
    const bool before = succession.keeps;
    const bool keeps = policy_succession(&succession, was_soon, &decision);
    assert_int_equal(keeps, succession.keeps);
    if (before == keeps) {
        assert_int_equal(decision.knob, 0);
        return keeps;
    }
    assert_int_equal(decision.knob, POLICY_KNOB_thread_blocks);
    assert_int_equal(decision.class_index, SIZE_CLASS_COUNT);
    assert_int_equal(decision.from, before);
    assert_int_equal(decision.to, keeps);
    assert_int_equal(decision.signal, POLICY_SIGNAL_successors);
    assert_in_range(decision.value, keeps ? 750 : 0, keeps ? 1000 : 499);
    decided++;
    return keeps;
}

// A window of threads, the first of which had a successor soon.
static bool end_window(unsigned soon) {
    for (unsigned i = 0; i < WINDOW - 1; i++) {
        end(i < soon);
    }
    return end(soon == WINDOW);
}

static void test_begins_where_most_have_a_successor(void **state) {
    (void)state;
    assert_false(end_window(11));
    for (unsigned i = 0; i < WINDOW - 1; i++) {
        assert_false(end(true));
    }
    assert_true(end(true));
    assert_true(end_window(8));
    assert_false(end_window(7));
    assert_int_equal(decided, 2);
    succession = (struct policy_succession){0};
    assert_true(end_window(12));
}

static void test_few_threads_decide_nothing(void **state) {
    (void)state;
    for (unsigned i = 0; i < WINDOW - 1; i++) {
        assert_false(end(true));
    }
    // Then once in a while, each with nobody behind it.
    for (unsigned i = 0; i < 10000; i++) {
        assert_false(end(false) && i > WINDOW);
    }
    assert_in_range(decided, 0, 2);
}

static void test_noise_between_the_borders_changes_nothing(void **state) {
    (void)state;
    uint64_t random = 48;
    for (unsigned i = 0; i < 10000; i++) {
        assert_false(end_window(8 + random_next(&random) % 4));
    }
    assert_true(end_window(16));
    for (unsigned i = 0; i < 10000; i++) {
        assert_true(end_window(8 + random_next(&random) % 4));
    }
    assert_int_equal(decided, 1);
}

static void test_each_end_doubles_the_pause(void **state) {
    (void)state;
    for (unsigned pause = 4; pause <= 4096; pause *= 2) {
        assert_true(end_window(16));
        assert_false(end_window(0));
        for (unsigned i = 0; i < pause; i++) {
            assert_false(end_window(16));
        }
    }
    assert_true(end_window(16));
    // As long as it gets.
    assert_false(end_window(0));
    for (unsigned i = 0; i < 4096; i++) {
        assert_false(end_window(16));
    }
    assert_true(end_window(16));
}

// Bursts and single threads by turns, in step with windows and pauses or not: few changes, and fewer the longer it lasts.
static void test_succession_that_alternates(void **state) {
    (void)state;
    for (unsigned period = 1; period <= 4096; period *= 2) {
        for (unsigned shift = 0; shift < 2; shift++) {
            succession = (struct policy_succession){0};
            decided = 0;
            for (unsigned i = 0; i < 400000; i++) {
                end((i + shift * period / 2) / period % 2 == 0);
            }
            assert_in_range(decided, 0, 34);
        }
    }
}

// Whoever sees the decision and does the opposite.
static void test_a_program_on_purpose(void **state) {
    (void)state;
    for (unsigned i = 0; i < 1000000; i++) {
        end(!succession.keeps);
    }
    assert_in_range(decided, 2, 52);
}

// ---- Recorded successions (docs/LEARNING.md)

static const struct {
    const char *about;
    unsigned kept_least, kept_most;  // of 100 threads
    unsigned decisions;
} recorded[] = {
    {"thread_churn\n", 90, 100, 1},
    {"a python3 program with a thread for each task, four at a time\n", 90, 100, 1},
    {"20 threads at once every 200 ms\n", 90, 100, 1},
    {"a thread every 30 ms\n", 0, 0, 0},
};

static void test_recorded_successions(void **state) {
    (void)state;
    FILE *file = fopen(RECORDED_THREADS, "r");
    assert_non_null(file);
    char about[200];
    for (size_t i = 0; i < ARRAY_COUNT(recorded); i++) {
        assert_non_null(fgets(about, sizeof about, file));
        assert_string_equal(about, recorded[i].about);
        succession = (struct policy_succession){0};
        decided = 0;
        unsigned threads = 0, kept = 0;
        for (int byte = fgetc(file); byte != '.'; byte = fgetc(file)) {
            assert_int_not_equal(byte, EOF);
            if (byte == '0' || byte == '1') {
                kept += end(byte == '1');
                threads++;
            }
        }
        assert_int_equal(fgetc(file), '\n');
        assert_in_range(100 * kept, recorded[i].kept_least * threads,
                        recorded[i].kept_most * threads);
        assert_int_equal(decided, recorded[i].decisions);
    }
    fclose(file);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_begins_where_most_have_a_successor),
        cmocka_unit_test(test_few_threads_decide_nothing),
        cmocka_unit_test(test_noise_between_the_borders_changes_nothing),
        cmocka_unit_test(test_each_end_doubles_the_pause),
        cmocka_unit_test(test_succession_that_alternates),
        cmocka_unit_test(test_a_program_on_purpose),
        cmocka_unit_test(test_recorded_successions),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
