// A cache as the learner's policy sees it, window by window, for the tests of the policy: what is decided is done.
#pragma once

#include "isolate.h"

#include "base/bits.h"
#include "control/policy.h"
#include "thread/capacity.h"

#define BUDGET_BYTES (4 * MIB)

static struct policy_limits limits = {
    .budget_bytes = BUDGET_BYTES,
    .budget_bytes_max = 8 * MIB,
    .start_bytes = 8 * KIB,
    .class_bytes_max = {256 * KIB, 1 * MIB, 2 * MIB},
    .miss_permille = {20, 30, 50},
    .step_percent = {100, 100, 100},
};

static struct policy_state state;
static struct policy_window window;
static struct policy_decision decisions[POLICY_DECISIONS_MAX];
static uint32_t reach[SIZE_CLASS_COUNT];  // what a class's limit is where nothing was learned
static unsigned made;                     // decisions so far

static inline void keep(void *context, const struct policy_decision *decision) {
    unsigned *count = context;
    assert_true(*count < POLICY_DECISIONS_MAX);
    decisions[(*count)++] = *decision;
}

static inline unsigned decide(const struct policy_limits *at) {
    unsigned kept = 0;
    const struct policy_audience audience = {keep, &kept};
    const unsigned count = policy_step(&state, &window, at, &audience);
    assert_int_equal(count, kept);
    return count;
}

static inline void start(void) {
    window.cpu_ns = 1 << 20;
    window.budget_bytes = BUDGET_BYTES;
}

// A class at the limit that it reaches by itself.
static inline void open_class(uint64_t class_index, uint64_t bytes) {
    struct policy_signals *signals = &window.classes[class_index];
    signals->capacity = (uint32_t)(bytes / size_classes[class_index].block_bytes);
    signals->limit = reach[class_index] = signals->capacity;
    signals->used = true;
}

static inline void set_events(uint64_t class_index, uint32_t refills, uint32_t flushes) {
    struct policy_signals *signals = &window.classes[class_index];
    const uint32_t moved = (uint32_t)least_u64(signals->capacity, NODE_SLOTS - 1);
    signals->refills = refills;
    signals->flushes = flushes;
    signals->refilled_blocks = refills * moved;
    signals->flushed_blocks = flushes * ((moved + 1) / 2);
    signals->used = signals->used || refills + flushes != 0;
}

static inline uint64_t spent(void) {
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        bytes += capacity_cost(i, window.classes[i].capacity);
    }
    return bytes;
}

// Whether the class may have it again by itself.
static inline bool is_handed_back(const struct policy_decision *decision) {
    return decision->signal == POLICY_SIGNAL_idle || decision->signal == POLICY_SIGNAL_gain;
}

static inline void apply(const struct policy_decision *decision) {
    if (decision->knob == POLICY_KNOB_budget) {
        assert_int_equal(decision->from, window.budget_bytes);
        assert_int_equal(decision->class_index, SIZE_CLASS_COUNT);
        window.budget_bytes = decision->to;
        return;
    }
    assert_int_equal(decision->knob, POLICY_KNOB_cap);
    assert_int_not_equal(decision->from, decision->to);
    struct policy_signals *signals = &window.classes[decision->class_index];
    signals->capacity = signals->limit = (uint32_t)decision->to;
    if (is_handed_back(decision)) {
        signals->limit = (uint32_t)greatest_u64(signals->limit, reach[decision->class_index]);
    }
}

// One window, with what must always hold of its decisions. Returns how many.
static inline unsigned step(void) {
    const unsigned count = decide(&limits);
    const uint64_t before = spent();
    for (unsigned i = 0; i < count; i++) {
        apply(&decisions[i]);
        // In their order they never need more than there is.
        assert_true(spent() <= greatest_u64(before, window.budget_bytes));
        assert_true(window.budget_bytes <= limits.budget_bytes_max);
    }
    made += count;
    return count;
}

// Windows of slow paths that are as far apart as `cpu_ns`.
static inline unsigned steps(unsigned windows, uint64_t cpu_ns) {
    unsigned count = 0;
    window.cpu_ns = cpu_ns;
    for (unsigned i = 0; i < windows; i++) {
        count += step();
    }
    return count;
}

static inline uint32_t capacity(uint64_t class_index) {
    return window.classes[class_index].capacity;
}
