// The learner's policy of memory: huge pages and what may stay free, on recorded signals, on made-up and adversarial ones.
#include "isolate.h"

#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "config/options.h"
#include "control/policy_memory.h"
#include "heap/heap_purge.h"
#include "space/huge_pages.h"

// ---- Huge pages

static struct policy_growth growth;
static unsigned decided;

// One superslab; what must always hold of what is decided.
static bool grow_by(uint64_t used_bytes, uint64_t resident_bytes) {
    const struct growth_signals signals = {used_bytes, resident_bytes, 0};
    struct policy_decision decision;
    const bool before = growth.asks;
    const bool asks = policy_growth(&growth, &signals, &decision);
    assert_int_equal(asks, growth.asks);
    if (before == asks) {
        assert_int_equal(decision.knob, 0);
        return asks;
    }
    assert_int_equal(decision.knob, POLICY_KNOB_huge_pages);
    assert_int_equal(decision.class_index, SIZE_CLASS_COUNT);
    assert_int_equal(decision.from, before);
    assert_int_equal(decision.to, asks);
    assert_int_equal(decision.signal, POLICY_SIGNAL_resident);
    decided++;
    return asks;
}

static bool grow(uint64_t permille) {
    return grow_by(1000 * 4096, permille * 4096);
}

static void test_begins_where_memory_is_dense(void **state) {
    (void)state;
    assert_false(grow(937));
    assert_true(grow(938));
    // What is a little less dense does not end it.
    assert_true(grow(875));
    assert_false(grow(874));
    assert_int_equal(decided, 2);
}

static void test_noise_between_the_borders_changes_nothing(void **state) {
    (void)state;
    uint64_t random = 28;
    for (unsigned i = 0; i < 10000; i++) {
        assert_false(grow(875 + random_next(&random) % 63));
    }
    assert_true(grow(1000));
    for (unsigned i = 0; i < 10000; i++) {
        assert_true(grow(875 + random_next(&random) % 63));
    }
    assert_int_equal(decided, 1);
}

static void test_each_end_doubles_the_pause(void **state) {
    (void)state;
    for (unsigned pause = 1; pause <= 64; pause *= 2) {
        assert_true(grow(1000));
        assert_false(grow(0));
        for (unsigned i = 0; i < pause; i++) {
            assert_false(grow(1000));
        }
    }
    assert_true(grow(1000));
}

// However dense the heap is: a huge page that took long ends it, for twice as long each time.
static void test_slow_huge_pages_end_it(void **state) {
    (void)state;
    struct policy_decision decision;
    struct growth_signals signals = {1000 * 4096, 1000 * 4096, 0};
    for (unsigned pause = 1; pause <= 64; pause *= 2) {
        signals.touch_ns = HUGE_PAGE_SLOW_NS - 1;
        assert_true(policy_growth(&growth, &signals, &decision));
        signals.touch_ns = HUGE_PAGE_SLOW_NS;
        assert_false(policy_growth(&growth, &signals, &decision));
        assert_int_equal(decision.knob, POLICY_KNOB_huge_pages);
        assert_int_equal(decision.from, 1);
        assert_int_equal(decision.to, 0);
        assert_int_equal(decision.signal, POLICY_SIGNAL_touch);
        assert_int_equal(decision.value, HUGE_PAGE_SLOW_NS);
        signals.touch_ns = 0;
        for (unsigned i = 0; i < pause; i++) {
            assert_false(policy_growth(&growth, &signals, &decision));
            assert_int_equal(decision.knob, 0);
        }
    }
}

// One that another thread tells of late: the pause only ends a superslab later.
static void test_slow_huge_page_during_a_pause(void **state) {
    (void)state;
    struct policy_decision decision;
    struct growth_signals signals = {1000 * 4096, 1000 * 4096, 0};
    assert_true(policy_growth(&growth, &signals, &decision));
    signals.touch_ns = HUGE_PAGE_SLOW_NS;
    for (unsigned i = 0; i < 3; i++) {
        assert_false(policy_growth(&growth, &signals, &decision));
        assert_int_equal(decision.knob != 0, i == 0);
    }
    signals.touch_ns = 0;
    assert_false(policy_growth(&growth, &signals, &decision));
    assert_true(policy_growth(&growth, &signals, &decision));
}

// Dense and sparse by turns, in step with the pauses or not: seldom asked, and seldom changed.
static void test_growth_that_alternates(void **state) {
    (void)state;
    for (unsigned period = 1; period <= 256; period *= 2) {
        memset(&growth, 0, sizeof growth);
        decided = 0;
        unsigned wrong = 0;
        for (unsigned i = 0; i < 20000; i++) {
            const bool is_dense = i / period % 2 == 0;
            wrong += grow(is_dense ? 1000 : 100) && !is_dense;
        }
        assert_in_range(decided, 2, 40);
        assert_int_equal(wrong, 0);
    }
}

static void test_extreme_growth(void **state) {
    (void)state;
    assert_false(grow_by(0, 0));
    assert_false(grow_by(0, UINT64_MAX));
    assert_false(grow_by(UINT64_MAX, 0));
    assert_true(grow_by(UINT64_MAX, UINT64_MAX));
    // A system that stopped telling.
    assert_false(grow_by(SUPERSLAB_BYTES, 0));
}

// ---- What may stay free

static struct excess_raise raise_state;

// Returns whether the log has a row of it, which follows the last one.
static bool excess(uint64_t bound_bytes, uint64_t refault_bytes) {
    struct policy_decision decision = {0};
    const uint64_t noted = raise_state.noted_bytes;
    if (!policy_excess(&raise_state, bound_bytes, refault_bytes, &decision)) {
        return false;
    }
    assert_int_equal(decision.class_index, SIZE_CLASS_COUNT);
    assert_int_equal(decision.signal, POLICY_SIGNAL_refault);
    assert_int_equal(decision.value, refault_bytes);
    assert_int_not_equal(decision.from, decision.to);
    assert_true(decision.from == noted || noted == 0 || decision.from == bound_bytes);
    assert_int_equal(raise_state.noted_bytes, decision.to);
    decided++;
    return true;
}

static void test_what_is_wanted_again_raises_the_bound(void **state) {
    (void)state;
    assert_false(excess(32 * MIB, 7 * MIB));
    assert_int_equal(raise_state.bytes, 39 * MIB);
    assert_true(excess(32 * MIB, 1 * MIB));
    assert_int_equal(raise_state.bytes, 40 * MIB);
    assert_false(excess(32 * MIB, 9 * MIB));
    assert_true(excess(32 * MIB, 1 * MIB));
    // More was in use when it was dropped.
    excess(100 * MIB, 1 * MIB);
    assert_int_equal(raise_state.bytes, 101 * MIB);
}

static void test_raise_ends_where_it_began(void **state) {
    (void)state;
    assert_true(excess(32 * MIB, 96 * MIB));
    unsigned rounds = 0;
    for (uint64_t before = UINT64_MAX; raise_state.bytes != 0; rounds++) {
        assert_true(raise_state.bytes < before);
        before = raise_state.bytes;
        excess(128 * MIB, 0);
    }
    // 128 times 7/8 to the 11th is less than 32.
    assert_int_equal(rounds, 11);
    assert_int_equal(raise_state.noted_bytes, 32 * MIB);
    assert_in_range(decided, 3, 8);
    // Without a bound to begin with it ends as well.
    raise_state = (struct excess_raise){0};
    excess(0, 100);
    for (rounds = 0; raise_state.bytes != 0; rounds++) {
        excess(100, 0);
    }
    assert_in_range(rounds, 10, 40);
}

// A byte at a time, and waves that come back just when the bound has fallen: rows for quarters, not for calls.
static void test_little_by_little(void **state) {
    (void)state;
    for (unsigned i = 0; i < 100000; i++) {
        excess(1 * MIB, 10);
    }
    assert_int_equal(raise_state.bytes, 1 * MIB + 1000000);
    assert_in_range(decided, 2, 4);
    decided = 0;
    for (unsigned i = 0; i < 100000; i++) {
        excess(1 * MIB, 0);
        excess(1 * MIB, raise_state.bytes / 7);
    }
    assert_in_range(decided, 0, 5);
}

static void test_extreme_refaults(void **state) {
    (void)state;
    excess(UINT64_MAX, UINT64_MAX);
    excess(0, UINT64_MAX);
    assert_int_equal(raise_state.bytes, UINT64_MAX);
    for (unsigned i = 0; i < 1000; i++) {
        excess(UINT64_MAX, 0);
    }
    assert_int_equal(raise_state.bytes, 0);
}

// ---- How long free pages inside slabs stay

enum { MOST_MS = 1600, LEAST_MS = MOST_MS / PURGE_EARLY_PART };

static struct purge_delay delay;
static uint64_t affordable_bytes;  // 0: anything is too dear

// One round over a heap's slabs: what was wanted again before it, what it purges. Returns whether the log has a row.
static bool look(uint64_t most_ms, uint64_t refault_bytes, uint64_t purged_bytes) {
    struct policy_decision decision = {0};
    const uint64_t before = delay.ms;
    delay.refault_bytes = refault_bytes;
    const bool is_decided =
        policy_delay(&delay, PURGE_EARLY_PART, most_ms, affordable_bytes, &decision);
    assert_true(delay.ms <= most_ms);
    assert_int_equal(delay.refault_bytes, 0);
    delay.early_bytes += least_u64(purged_bytes, UINT64_MAX - delay.early_bytes);
    if (is_decided) {
        assert_int_equal(decision.knob, POLICY_KNOB_slab_purge_delay_ms);
        assert_int_equal(decision.class_index, SIZE_CLASS_COUNT);
        assert_int_equal(decision.signal, POLICY_SIGNAL_refault);
        assert_true(decision.value <= refault_bytes);
        assert_true(decision.from == before || before == 0);
        assert_int_equal(decision.to, delay.ms);
        assert_int_not_equal(decision.from, decision.to);
        decided++;
    } else {
        assert_true(delay.ms == before || before == 0);
    }
    return is_decided;
}

static void test_delay_stays_short_where_nothing_is_wanted_again(void **state) {
    (void)state;
    for (unsigned i = 0; i < 10000; i++) {
        assert_false(look(MOST_MS, 0, i % 3 == 0 ? MIB : 0));
        assert_int_equal(delay.ms, LEAST_MS);
    }
}

static void test_delay_doubles_up_to_the_options(void **state) {
    (void)state;
    look(MOST_MS, 0, MIB);
    for (uint64_t ms = 2 * LEAST_MS; ms <= MOST_MS; ms *= 2) {
        assert_true(look(MOST_MS, MIB, MIB));
        assert_int_equal(delay.ms, ms);
    }
    assert_false(look(MOST_MS, MIB, MIB));
    assert_int_equal(delay.ms, MOST_MS);
}

static void test_little_that_is_wanted_again_is_worth_it(void **state) {
    (void)state;
    look(MOST_MS, 0, 16 * MIB);
    assert_false(look(MOST_MS, MIB, 0));
    delay.early_bytes = 16 * MIB;
    assert_true(look(MOST_MS, MIB + 1, 0));
    // Nothing went early: what is wanted is no fault of the delay.
    delay.early_bytes = 0;
    assert_false(look(MOST_MS, MIB, 0));
}

static void test_what_is_wanted_again_may_be_afforded(void **state) {
    (void)state;
    look(MOST_MS, 0, MIB);
    affordable_bytes = MIB;
    for (unsigned i = 0; i < 1000; i++) {
        assert_false(look(MOST_MS, MIB, MIB));
    }
    assert_int_equal(delay.ms, LEAST_MS);
    affordable_bytes = MIB - 1;
    assert_true(look(MOST_MS, MIB, MIB));
    assert_int_equal(delay.ms, 2 * LEAST_MS);
    // What costs little counts as calm.
    affordable_bytes = UINT64_MAX;
    for (unsigned i = 0; i < 32; i++) {
        assert_false(look(MOST_MS, UINT64_MAX, MIB));
    }
    assert_true(look(MOST_MS, UINT64_MAX, MIB));
    assert_int_equal(delay.ms, LEAST_MS);
}

enum { LITTLE = 256 * KIB };

// So many rounds after which more than half of so little was wanted again, and each other round nothing.
static void look_in_vain(unsigned rounds) {
    for (unsigned i = 0; i < rounds; i++) {
        delay.early_bytes = LITTLE;
        assert_false(look(MOST_MS, LITTLE / 2 + 1, 0));
        delay.early_bytes = LITTLE;
        assert_false(look(MOST_MS, 0, 0));
    }
}

// Otherwise a steady state would have OS calls for ever, each of them cheap.
static void test_little_that_comes_back_is_not_worth_the_calls(void **state) {
    (void)state;
    affordable_bytes = UINT64_MAX;
    look_in_vain(2);
    delay.early_bytes = LITTLE;
    assert_true(look(MOST_MS, LITTLE / 2 + 1, 0));
    assert_int_equal(delay.ms, MOST_MS);
    // Nothing goes early now, so nothing counts; then it is tried again.
    for (unsigned i = 0; i < 32; i++) {
        assert_false(look(MOST_MS, LITTLE, LITTLE));
    }
    assert_true(look(MOST_MS, LITTLE, LITTLE));
    assert_int_equal(delay.ms, MOST_MS / 2);
}

static void test_more_than_little_or_less_than_most_is_worth_the_calls(void **state) {
    (void)state;
    affordable_bytes = UINT64_MAX;
    for (unsigned i = 0; i < 100; i++) {
        delay.early_bytes = LITTLE + 1;
        assert_false(look(MOST_MS, UINT64_MAX, 0));
        delay.early_bytes = LITTLE;
        assert_false(look(MOST_MS, LITTLE / 2, 0));
    }
    // One such round takes one of the others back.
    for (unsigned i = 0; i < 100; i++) {
        look_in_vain(1);
        delay.early_bytes = LITTLE;
        assert_false(look(MOST_MS, LITTLE / 2, 0));
    }
    assert_int_equal(delay.ms, LEAST_MS);
}

// Half a nanosecond for a byte, in 16 of 1000 nanoseconds.
static void test_what_can_be_afforded(void **state) {
    (void)state;
    assert_int_equal(refault_bytes_affordable(MIB / 16 * 500), MIB);
    assert_true(refault_bytes_affordable(MIB / 16 * 500 - 1) < MIB);
    options.refault_permille = 500;
    assert_int_equal(refault_bytes_affordable(UINT64_MAX), UINT64_MAX / 500 * 500);
    options.refault_permille = 0;
    assert_int_equal(refault_bytes_affordable(UINT64_MAX), 0);
}

// What went long ago was right to go.
static void test_what_went_long_ago_is_forgotten(void **state) {
    (void)state;
    look(MOST_MS, 0, MIB);
    for (unsigned i = 0; i < 100; i++) {
        look(MOST_MS, 0, 0);
    }
    assert_true(delay.early_bytes < 8);
}

static unsigned rounds_until_shorter(void) {
    unsigned rounds = 1;
    for (; !look(MOST_MS, 0, 0); rounds++) {
        assert_in_range(rounds, 1, 10000);
    }
    return rounds;
}

static void test_delay_is_halved_when_it_is_calm_ever_later(void **state) {
    (void)state;
    for (unsigned calm = 32; calm <= 8192; calm *= 2) {
        delay.early_bytes = MIB;
        assert_true(look(MOST_MS, MIB, 0));
        assert_int_equal(delay.ms, 2 * LEAST_MS);
        assert_int_equal(rounds_until_shorter(), calm + 1);
        assert_int_equal(delay.ms, LEAST_MS);
    }
}

// Waves that come back whenever the delay has become short: what they cost, ever more seldom.
static void test_waves_in_step_with_the_delay(void **state) {
    (void)state;
    uint64_t refault_bytes = 0;
    for (unsigned i = 0; i < 100000; i++) {
        const bool is_short = delay.ms < MOST_MS;
        refault_bytes += is_short ? MIB : 0;
        look(MOST_MS, is_short ? MIB : 0, is_short ? MIB : 0);
    }
    assert_in_range(refault_bytes / MIB, 5, 40);
    assert_in_range(decided, 5, 80);
}

static void test_delay_follows_the_option(void **state) {
    (void)state;
    look(MOST_MS, 0, MIB);
    look(MOST_MS, MIB, 0);
    assert_int_equal(delay.ms, 2 * LEAST_MS);
    assert_true(look(LEAST_MS, 0, 0));
    assert_int_equal(delay.ms, LEAST_MS);
    assert_true(look(0, 0, 0));
    assert_int_equal(delay.ms, 0);
    // That is no change.
    assert_false(look(0, 0, MIB));
    assert_int_equal(delay.ms, 0);
    look(1, 0, 0);
    assert_int_equal(delay.ms, 1);
    for (unsigned i = 0; i < 100; i++) {
        look(UINT32_MAX, UINT64_MAX, UINT64_MAX);
    }
    assert_int_equal(delay.ms, UINT32_MAX);
}

// ---- Recorded signals of rows of bench/workloads.toml (docs/LEARNING.md)

static const struct {
    const char *about;
    unsigned asked_least, asked_most;
    unsigned decisions;
} recorded[] = {
    {"growth of mixed_million\n", 9, 9, 1},
    // Three quarters of the first wave's memory are purged inside slabs, and filled again.
    {"growth of phase_change\n", 12, 13, 3},
    {"growth of large\n", 10, 10, 1},
    // Slabs that fill; blocks that are never filled.
    {"growth of spike_idle\n", 0, 0, 0},
    {"growth of larson_medium_8\n", 0, 0, 0},
    // 45.5 and 49.7 MiB in the end.
    {"excess of larson_medium_4\n", 0, 0, 1},
    {"excess of phase_change\n", 0, 0, 1},
    // Much is wanted again, for at most a 68th of the time.
    {"delay of php\n", 0, 0, 0},
    {"delay of perl\n", 0, 0, 0},
    {"delay of lua\n", 0, 0, 0},
};

static void test_recorded_signals(void **state) {
    (void)state;
    FILE *file = fopen(RECORDED_MEMORY, "r");
    assert_non_null(file);
    char line[200];
    unsigned index = 0;
    unsigned asked = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        unsigned long long count, used, resident, bound, refault, spent;
        if (sscanf(line, "superslab %*u %llu %llu", &used, &resident) == 2) {
            asked += grow_by(used, resident);
        } else if (sscanf(line, "refault %llu %llu", &bound, &refault) == 2) {
            excess(bound, refault);
        } else if (sscanf(line, "round %llu %llu %llu %llu", &bound, &count, &refault, &spent) ==
                   4) {
            delay.early_bytes = count;
            affordable_bytes = refault_bytes_affordable(spent);
            look(bound, refault, 0);
        } else if (strcmp(line, "end\n") == 0) {
            assert_in_range(asked, recorded[index].asked_least, recorded[index].asked_most);
            assert_int_equal(decided, recorded[index].decisions);
            index++;
        } else {
            assert_string_equal(line, recorded[index].about);
            growth = (struct policy_growth){0};
            raise_state = (struct excess_raise){0};
            delay = (struct purge_delay){0};
            asked = decided = 0;
        }
    }
    assert_int_equal(index, ARRAY_COUNT(recorded));
    fclose(file);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_begins_where_memory_is_dense),
        cmocka_unit_test(test_noise_between_the_borders_changes_nothing),
        cmocka_unit_test(test_each_end_doubles_the_pause),
        cmocka_unit_test(test_slow_huge_pages_end_it),
        cmocka_unit_test(test_slow_huge_page_during_a_pause),
        cmocka_unit_test(test_growth_that_alternates),
        cmocka_unit_test(test_extreme_growth),
        cmocka_unit_test(test_what_is_wanted_again_raises_the_bound),
        cmocka_unit_test(test_raise_ends_where_it_began),
        cmocka_unit_test(test_little_by_little),
        cmocka_unit_test(test_extreme_refaults),
        cmocka_unit_test(test_delay_stays_short_where_nothing_is_wanted_again),
        cmocka_unit_test(test_delay_doubles_up_to_the_options),
        cmocka_unit_test(test_little_that_is_wanted_again_is_worth_it),
        cmocka_unit_test(test_what_is_wanted_again_may_be_afforded),
        cmocka_unit_test(test_little_that_comes_back_is_not_worth_the_calls),
        cmocka_unit_test(test_more_than_little_or_less_than_most_is_worth_the_calls),
        cmocka_unit_test(test_what_can_be_afforded),
        cmocka_unit_test(test_what_went_long_ago_is_forgotten),
        cmocka_unit_test(test_delay_is_halved_when_it_is_calm_ever_later),
        cmocka_unit_test(test_waves_in_step_with_the_delay),
        cmocka_unit_test(test_delay_follows_the_option),
        cmocka_unit_test(test_recorded_signals),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
