// The learner at work on a thread's cache: what it decides, what it writes down, and what it must never exceed.
#include "isolate.h"

#include <stdio.h>

#include "api/alloc.h"
#include "base/bits.h"
#include "config/options.h"
#include "control/check.h"
#include "control/learner.h"
#include "counted.h"
#include "fake_os.h"
#include "heap/slab.h"
#include "learned.h"
#include "space/metadata.h"
#include "space/purge_delay.h"
#include "space/space_hooks.h"
#include "thread/fork.h"
#include "thread/lifecycle.h"
#include "thread/research.h"

static void start(void) {
    learner_start();
    assert_non_null(lifecycle_attach());
    options.watched_operations = 0;
}

#define SLOTS 400
static void *slots[SLOTS];

// Now and then the thread has no processor for a while.
static bool is_preempted;

static void pass_time(uint64_t random) {
    fake_os_pass_cpu_ns(100);
    if (is_preempted && random % 1024 == 0) {
        fake_os_pass_ms(1000);
    }
}

// Random blocks come and go, as many in use as slots; the budget is looked at all the time.
static void wander(unsigned operations, size_t least, size_t most) {
    uint64_t random = 7;
    for (unsigned i = 0; i < operations; i++) {
        void **slot = &slots[random_next(&random) % SLOTS];
        pass_time(random);
        if (*slot == NULL) {
            *slot = alloc(least + random_next(&random) % (most - least + 1));
            assert_non_null(*slot);
        } else {
            dealloc(*slot);
            *slot = NULL;
        }
        if (i % 64 == 0) {
            // What a class starts with, it has in any case.
            assert_true(thread_cache->capacity_bytes <=
                        capacity_allowed(&(struct capacity_claim){
                            .budget_bytes = 2 * option_live(cache_heap_bytes)}) +
                            SIZE_CLASS_COUNT * (NODE_BYTES + SMALL_BYTES_MAX));
            assert_true(thread_cache->claim.budget_bytes <= 2 * option_live(cache_heap_bytes));
        }
    }
    assert_int_equal(check_all(), 0);
}

static uint64_t refills(void) {
    return counted(COUNTER_refills);
}

// Refills of the second half, when all is learned.
static uint64_t refills_when_learned(void) {
    wander(300000, 2048, 32768);
    const uint64_t before = refills();
    wander(300000, 2048, 32768);
    return refills() - before;
}

static int scenario_off(const void *context) {
    (void)context;
    start();
    options.learn = 0;
    const uint64_t count = refills_when_learned();
    require(decided() == 0 && atomic_load_relaxed(&decision_log.recorded) == 0);
    require(thread_cache->claim.budget_bytes == 0 && count > 1000);
    return 0;
}

static void test_off_decides_nothing(void **state) {
    (void)state;
    assert_int_equal(run_scenario(scenario_off, NULL), 0);
}

static void test_learns_what_a_working_set_needs(void **state) {
    (void)state;
    start();
    // Without it there are more than 1,000 (scenario_off).
    assert_in_range(refills_when_learned(), 0, 500);
    assert_in_range(decided(), 10, 300);
    assert_true(thread_cache->claim.budget_bytes > option_live(cache_heap_bytes));
    // Each row is whole: its number, and a knob that moved.
    const uint64_t count = least_u64(decided(), DECISION_COUNT);
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t number = decided() - i;
        struct decision *row = &decision_log.decisions[number % DECISION_COUNT];
        assert_int_equal(atomic_load_relaxed(&row->number), number);
        assert_int_equal(atomic_load_relaxed(&row->heap), thread_cache->heap.id);
        assert_int_not_equal(atomic_load_relaxed(&row->from), atomic_load_relaxed(&row->to));
        assert_in_range(atomic_load_relaxed(&row->signal), POLICY_SIGNAL_churn,
                        POLICY_SIGNAL_density);
    }
}

// What other programs take of the machine is neither a gain nor a loss.
static void test_time_without_a_processor_is_no_signal(void **state) {
    (void)state;
    start();
    is_preempted = true;
    wander(300000, 2048, 32768);
    const uint64_t rows = least_u64(atomic_load_relaxed(&decision_log.recorded), RECORDED_COUNT);
    assert_in_range(rows, 50, RECORDED_COUNT);
    for (uint64_t i = 0; i < RECORDED_COUNT; i++) {
        assert_in_range(atomic_load_relaxed(&decision_log.windows[i].cpu_ns), 0, 300000 * 100);
    }
}

static void test_a_class_at_rest_is_not_used(void **state) {
    (void)state;
    start();
    // Beside those that are busy.
    dealloc(alloc(40960));
    assert_true(thread_cache->magazines[SIZE_CLASS_40960].capacity > 0);
    wander(300000, 2048, 32768);
    unsigned rows = 0, busy = 0;
    for (unsigned i = 0; i < RECORDED_COUNT; i++) {
        const uint8_t class_index = atomic_load_relaxed(&decision_log.windows[i].class_index);
        rows += class_index == SIZE_CLASS_40960;
        busy += class_index == SIZE_CLASS_32768;
    }
    // Its own first refill alone may be one.
    assert_in_range(rows, 0, 1);
    assert_in_range(busy, 3, RECORDED_COUNT);
}

static void test_shares_are_kept(void **state) {
    (void)state;
    start();
    options.cache_total_bytes = 6 * MIB;
    wander(300000, 2048, 32768);
    assert_true(thread_cache->claim.budget_bytes <= 6 * MIB);
}

// Without a window's own knowledge of the share it would take the part that a class may have for twice as much.
static void test_learns_within_a_small_share(void **state) {
    (void)state;
    start();
    options.cache_total_bytes = 2 * MIB;
    wander(300000, 2048, 32768);
    assert_int_equal(
        capacity_allowed(&(struct capacity_claim){.budget_bytes = CAPACITY_BUDGET_MOST}), 2 * MIB);
    assert_in_range(decided(), 1, 300);
    uint64_t most = 0;
    for (uint64_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        most = greatest_u64(most, capacity_cost(i, thread_cache->magazines[i].capacity));
    }
    // Without evidence a class has 128 KiB of them.
    assert_true(most > 128 * KIB + NODE_BYTES);
}

static void end_thread(void) {
    lifecycle_detach();
    thread_cache = (struct thread_cache *)(uintptr_t)&cache_of_new_thread;
    assert_non_null(lifecycle_attach());
}

static uint64_t recorded(void) {
    return atomic_load_relaxed(&decision_log.recorded);
}

static uint64_t slow_paths(void) {
    return counted(COUNTER_refills) + counted(COUNTER_flushes);
}

// Slow paths until a window is decided on.
static uint64_t slow_paths_to_window(void) {
    const uint64_t rows = recorded();
    const uint64_t before = slow_paths();
    for (unsigned i = 0; recorded() == rows; i++) {
        assert_true(i < 1000);
        wander(200, 2048, 32768);
    }
    return slow_paths() - before;
}

// So little for the caches that slow paths go on, whatever is learned.
static void start_short(void) {
    start();
    options.cache_total_bytes = 2 * MIB;
}

// The first windows are behind the thread.
static void start_amid_windows(void) {
    start_short();
    wander(300000, 2048, 32768);
    thread_cache->learner_window = LEARNER_WINDOW_EVENTS;
    slow_paths_to_window();
}

static void test_a_thread_starts_with_a_clock_of_its_own(void **state) {
    (void)state;
    start_amid_windows();
    thread_cache->learner_window = LEARNER_WINDOW_EVENTS;
    assert_in_range(slow_paths_to_window(), 1, LEARNER_WINDOW_EVENTS + 200);
    struct thread_cache *cache = thread_cache;
    end_thread();
    assert_ptr_equal(thread_cache, cache);
    assert_int_equal(cache->learner_window, LEARNER_WINDOW_EVENTS);
    // The first look starts the clock, the second decides.
    assert_in_range(slow_paths_to_window(), 2 * LEARNER_WINDOW_EVENTS,
                    2 * LEARNER_WINDOW_EVENTS + 200);
}

// What a look needs while it lasts is made once, not for each cache.
static void test_caches_share_a_window(void **state) {
    (void)state;
    start();
    wander(100000, 2048, 32768);
    struct thread_cache *other = metadata_alloc(sizeof *other);
    assert_non_null(other);
    cache_init(other, 1000);
    const uint64_t bytes = metadata_bytes();
    const uint64_t rows = recorded();
    knobs_call(&knobs_hooks.window, other);
    knobs_call(&knobs_hooks.window, other);
    assert_non_null(other->learner);
    assert_int_equal(recorded(), rows);
    assert_in_range(metadata_bytes() - bytes, 1, 3072);
}

// Without memory for a window the learner rests, and begins anew once there is some.
static void test_no_memory_for_a_window(void **state) {
    (void)state;
    start();
    struct thread_cache *cache = metadata_alloc(sizeof *cache);
    assert_non_null(cache);
    cache_init(cache, 1000);
    knobs_call(&knobs_hooks.window, cache);
    assert_non_null(cache->learner);
    fake_os_fail(OS_MMAP, 1, true);
    while (metadata_alloc(sizeof(struct policy_window)) != NULL) {
    }
    cache->learner_window = 4 * LEARNER_WINDOW_EVENTS;
    knobs_call(&knobs_hooks.window, cache);
    assert_int_equal(cache->learner_window, LEARNER_WINDOW_EVENTS);
    fake_os_mend();
    // The first look starts the clock; the second finds nothing to decide.
    knobs_call(&knobs_hooks.window, cache);
    assert_int_equal(cache->learner_window, LEARNER_WINDOW_EVENTS);
    knobs_call(&knobs_hooks.window, cache);
    assert_int_equal(cache->learner_window, 2 * LEARNER_WINDOW_EVENTS);
}

static uint64_t clock_calls(void) {
    return atomic_load_relaxed(&os_call_counters.calls[OS_CLOCK]);
}

// A cache with one class that has grown as far as it does by itself, of a thread that is so old.
static void start_with_a_class(uint64_t age_ticks) {
    start();
    options.cache_class_bytes = 8 * KIB;
    dealloc(alloc(4096));
    cache_set_limit(thread_cache, SIZE_CLASS_4096,
                    thread_cache->magazines[SIZE_CLASS_4096].capacity);
    thread_cache->passed_ticks = os_ticks() - age_ticks;
}

// A look at a window in which every operation of the class, or none, reached the slabs.
static void look_at(uint64_t class_index, bool churns) {
    fake_os_pass_cpu_ns(1000 * 1000);
    if (churns) {
        thread_cache->magazines[class_index].signals = (struct class_signals){
            .refills = 64, .flushes = 64, .refilled_blocks = 64, .flushed_blocks = 64};
    }
    knobs_call(&knobs_hooks.window, thread_cache);
}

static void look(bool churns) {
    look_at(SIZE_CLASS_4096, churns);
}

// The processor's time costs a system call: nobody asks for it while there is nothing to judge.
static void test_the_clock_rests(void **state) {
    (void)state;
    start_with_a_class(0);
    uint64_t calls = clock_calls();
    look(false);
    look(false);
    assert_int_equal(clock_calls(), calls + 2);
    for (unsigned i = 0; i < 10; i++) {
        look(false);
    }
    assert_int_equal(clock_calls(), calls + 2);
    assert_int_equal(thread_cache->learner_window, LEARNER_WINDOW_EVENTS_MAX);
    // A raise is wanted: from now on, and soon, there is a look at the time.
    look(true);
    assert_int_equal(clock_calls(), calls + 3);
    assert_int_equal(thread_cache->learner_window, LEARNER_WINDOW_EVENTS);
    assert_int_equal(decided(), 0);
    look(true);
    assert_int_equal(decided(), 1);
    // Nobody uses the raise, which is taken back: once its pause has ended as well nothing is left to judge.
    for (unsigned i = 0; i < 16; i++) {
        look(false);
    }
    calls = clock_calls();
    look(false);
    assert_int_equal(clock_calls(), calls);
    assert_int_equal(decided(), 2);
    assert_int_equal(thread_cache->magazines[SIZE_CLASS_4096].limit,
                     thread_cache->magazines[SIZE_CLASS_4096].capacity);
}

// A class with a raise on trial that it has made use of.
static const struct magazine *start_with_a_trial(void) {
    start_with_a_class(0);
    const struct magazine *magazine = &thread_cache->magazines[SIZE_CLASS_4096];
    assert_int_equal(magazine->capacity, 2);
    while (decided() == 0) {
        look(true);
    }
    assert_int_equal(magazine->limit, 4);
    grow(SIZE_CLASS_4096, 5);
    assert_int_equal(magazine->capacity, 4);
    return magazine;
}

static void check_is_as_before(const struct magazine *magazine) {
    assert_int_equal(magazine->limit, 2);
    assert_int_equal(magazine->capacity, 2);
    assert_int_equal(decided(), 1);
    assert_int_equal(check_all(), 0);
}

// A raise that was not judged yet is not what the next thread begins with: a row of them would raise it without end.
static void test_a_trial_is_not_handed_on(void **state) {
    (void)state;
    const struct magazine *magazine = start_with_a_trial();
    thread_cache->claim.budget_bytes = 2 * option_live(cache_heap_bytes);
    end_thread();
    look(false);
    check_is_as_before(magazine);
    assert_in_range(thread_cache->claim.budget_bytes, 1, option_live(cache_heap_bytes));
}

// What a decay takes of a class whose turn is over is no use of it.
static void test_a_decay_proves_no_raise(void **state) {
    (void)state;
    const struct magazine *magazine = start_with_a_trial();
    for (unsigned i = 0; i < 15; i++) {
        look(false);
        if (i >= 2) {  // the first window after a raise judges nothing
            cache_decay(thread_cache);
        }
    }
    assert_int_equal(magazine->limit, 2);
    assert_int_equal(decided(), 2);
}

static void test_a_child_of_fork_has_no_trial(void **state) {
    (void)state;
    const struct magazine *magazine = start_with_a_trial();
    fork_prepare();
    fork_child();
    look(false);
    check_is_as_before(magazine);
}

// A class that started anew meanwhile has the limit that it had.
static void test_a_closed_class_has_no_trial(void **state) {
    (void)state;
    const struct magazine *magazine = start_with_a_trial();
    options.cache_total_bytes = 4096;
    cache_adjust(thread_cache);
    assert_int_equal(magazine->capacity, 0);
    end_thread();
    look(false);
    assert_int_equal(magazine->limit, 2);
    assert_int_equal(magazine->capacity, 0);
    // One whose limit was forgotten is not given any.
    look(true);
    cache_forget(thread_cache);
    end_thread();
    look(false);
    assert_int_equal(magazine->limit, 0);
}

// What the learner takes for others a class may have again as one that nothing was learned of.
static void test_a_class_that_was_idle_grows_again(void **state) {
    (void)state;
    start_with_a_class(0);
    const struct magazine *magazine = &thread_cache->magazines[SIZE_CLASS_16];
    const uint32_t most = 256 * KIB / 16;
    options.cache_class_bytes = 256 * KIB;
    options.cache_heap_bytes = 272 * KIB;
    grow(SIZE_CLASS_16, 10000);
    grow(SIZE_CLASS_16, 10000);
    assert_int_equal(magazine->capacity, most);
    for (unsigned i = 0; i < 10; i++) {
        look(false);
    }
    // This raise has no room without it.
    while (decided() == 0) {
        look(true);
    }
    assert_int_equal(magazine->capacity, 8 * KIB / 16);
    options.cache_heap_bytes = 4 * MIB;
    atomic_store_relaxed(&knobs_hooks.window, NULL);
    grow(SIZE_CLASS_16, 10000);
    assert_int_equal(magazine->capacity, most);
}

// So it is with a raise that was taken back.
static void test_a_raise_in_vain_leaves_no_limit(void **state) {
    (void)state;
    start_with_a_class(0);
    struct magazine *magazine = &thread_cache->magazines[SIZE_CLASS_4096];
    magazine->limit = 0;
    for (unsigned i = 0; decided() < 2; i++) {
        assert_in_range(i, 0, 20);
        look(true);
        grow(SIZE_CLASS_4096, 5);
    }
    assert_int_equal(magazine->capacity, 2);
    assert_int_equal(magazine->limit, 0);
}

// Slow paths that are milliseconds apart are not worth a look at the time.
static void test_seldom_slow_paths_start_no_clock(void **state) {
    (void)state;
    start_with_a_class(LEARNER_WINDOW_EVENTS * OS_TICKS_PACE);
    const uint64_t calls = clock_calls();
    look(true);
    assert_int_equal(clock_calls(), calls);
    // Since the first look they came at once.
    look(true);
    assert_int_equal(clock_calls(), calls + 1);
}

// So has the one thread of a fork's child.
static void test_a_child_of_fork_starts_with_a_clock_of_its_own(void **state) {
    (void)state;
    start_amid_windows();
    fork_prepare();
    fork_child();
    assert_in_range(slow_paths_to_window(), 2 * LEARNER_WINDOW_EVENTS,
                    2 * LEARNER_WINDOW_EVENTS + 200);
}

static void test_may_be_switched_off(void **state) {
    (void)state;
    start();
    wander(100000, 2048, 32768);
    const uint64_t count = decided();
    assert_true(count > 0);
    assert_true(options_set("learn", "0"));
    wander(100000, 1024, 65536);
    assert_int_equal(decided(), count);
}

static void test_what_was_learned_goes_with_the_option(void **state) {
    (void)state;
    start();
    wander(300000, 2048, 32768);
    assert_true(thread_cache->claim.budget_bytes > option_live(cache_heap_bytes));
    assert_true(options_set("learn", "0"));
    thread_cache->learner_window = LEARNER_WINDOW_EVENTS;  // it may have become long
    wander(100000, 1024, 65536);  // other sizes: those of before take the slow path seldom now
    assert_int_equal(thread_cache->claim.budget_bytes, 0);
    for (uint64_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        assert_int_equal(thread_cache->magazines[i].limit, 0);
        assert_true(capacity_cost(i, thread_cache->magazines[i].capacity) <=
                    greatest_u64(option_live(cache_class_bytes), size_classes[i].block_bytes) +
                        NODE_BYTES);
    }
    // Switched on again it looks at what happens from then on.
    const uint64_t rows = recorded();
    assert_true(options_set("learn", "1"));
    slow_paths_to_window();
    uint64_t events = 0;
    for (uint64_t number = rows + 1; number <= recorded(); number++) {
        const struct recorded *row = &decision_log.windows[number % RECORDED_COUNT];
        events += row->refills + row->flushes;
    }
    assert_in_range(events, 1, LEARNER_WINDOW_EVENTS + 8);
}

static void test_options_bind_what_was_learned(void **state) {
    (void)state;
    start();
    wander(300000, 2048, 32768);
    assert_true(thread_cache->claim.budget_bytes > 4 * MIB);
    assert_true(options_set("cache_heap_bytes", "1M"));
    assert_int_equal(capacity_allowed(&thread_cache->claim), 2 * MIB);
    assert_true(options_set("cache_heap_bytes", "16M"));
    assert_int_equal(capacity_allowed(&thread_cache->claim), 16 * MIB);
}

// ---- The options of each group of classes

static const struct {
    const char *name;
    uint64_t class_index;
} groups[CLASS_GROUP_COUNT] = {
    {"tiny", SIZE_CLASS_256}, {"mid", SIZE_CLASS_4096}, {"large", SIZE_CLASS_40960}};

// What a class in these tests starts with, in blocks.
#define STARTS_WITH 4

struct group_case {
    const char *option;  // without the group's name
    uint64_t value;      // in blocks of the class if `in_blocks`
    bool in_blocks;
    bool is_others;   // the option is set for the two other groups
    uint64_t raised;  // blocks that the class may have after its first raise; 0: there is none
    unsigned group;
};

// `option` of one group, in the syntax of the environment.
static void set_for_group(const char *option, unsigned group, uint64_t value) {
    char name[64], text[32];
    snprintf(name, sizeof name, "%s_%s", option, groups[group].name);
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    require(options_set(name, text));
}

static void set_for_groups(const struct group_case *expected) {
    for (unsigned group = 0; group < CLASS_GROUP_COUNT; group++) {
        if ((group == expected->group) != expected->is_others) {
            const uint64_t block_bytes = size_classes[groups[group].class_index].block_bytes;
            set_for_group(expected->option, group,
                          expected->in_blocks ? expected->value * block_bytes : expected->value);
        }
    }
}

// What the first decision on the class's cache made of it; 0: there is none.
static uint64_t raised_to(uint64_t class_index) {
    for (uint64_t number = 1; number <= decided(); number++) {
        const struct decision *row = &decision_log.decisions[number % DECISION_COUNT];
        if (row->knob == POLICY_KNOB_cap && row->class_index == class_index) {
            return row->to;
        }
    }
    return 0;
}

static int scenario_of_group(const void *context) {
    const struct group_case *expected = context;
    const uint64_t class_index = groups[expected->group].class_index;
    start();
    options.cache_start_bytes = STARTS_WITH * size_classes[class_index].block_bytes;
    options.cache_class_bytes = options.cache_start_bytes;
    dealloc(alloc(size_classes[class_index].block_bytes));
    require(thread_cache->magazines[class_index].capacity == STARTS_WITH);
    cache_set_limit(thread_cache, class_index, STARTS_WITH);
    thread_cache->passed_ticks = os_ticks();
    options.cap_step_tiny = 100;
    set_for_groups(expected);
    // The first look begins, the second asks for the clock, the third decides.
    for (unsigned i = 0; i < 3; i++) {
        look_at(class_index, true);
    }
    require(raised_to(class_index) == expected->raised);
    return 0;
}

static void test_options_of_each_group(void **state) {
    (void)state;
    static const struct group_case cases[] = {
        {"target_hit", 990, false, false, 2 * STARTS_WITH, 0},
        {"target_hit", 0, false, false, 0, 0},
        {"target_hit", 0, false, true, 2 * STARTS_WITH, 0},
        {"cap_step", 50, false, false, STARTS_WITH + STARTS_WITH / 2, 0},
        {"cap_step", 50, false, true, 2 * STARTS_WITH, 0},
        {"cap_max", STARTS_WITH + 1, true, false, STARTS_WITH + 1, 0},
        {"cap_max", STARTS_WITH, true, false, 0, 0},
        {"cap_max", STARTS_WITH, true, true, 2 * STARTS_WITH, 0},
    };
    for (unsigned group = 0; group < CLASS_GROUP_COUNT; group++) {
        for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
            struct group_case one = cases[i];
            one.group = group;
            if (run_scenario(scenario_of_group, &one) != 0) {
                fail_msg("case %zu of %s_%s", i, one.option, groups[group].name);
            }
        }
    }
}

// By itself, from its refills, a cache grows no further either.
static void test_no_cache_grows_above_the_maximum_of_its_group(void **state) {
    (void)state;
    start();
    options.cache_class_bytes = 0;
    for (unsigned group = 0; group < CLASS_GROUP_COUNT; group++) {
        const uint64_t class_index = groups[group].class_index;
        set_for_group("cap_max", group, (group + 5) * size_classes[class_index].block_bytes);
    }
    for (unsigned group = 0; group < CLASS_GROUP_COUNT; group++) {
        assert_int_equal(capacity_limit(1 * GIB, groups[group].class_index, 1000), group + 5);
    }
}

static void test_diverted_operations_teach_nothing(void **state) {
    (void)state;
    start_short();
    wander(300000, 2048, 32768);
    assert_true(options_set("research", "1"));
    research_follow(thread_cache);
    assert_true(cache_is_diverted(thread_cache));
    const uint64_t rows = recorded();
    const uint64_t before = slow_paths();
    wander(100000, 1024, 65536);
    assert_true(slow_paths() - before > 4 * LEARNER_WINDOW_EVENTS_MAX);
    assert_int_equal(recorded(), rows);
    assert_true(options_set("research", "0"));
    research_follow(thread_cache);
    wander(100000, 2048, 32768);
    assert_true(recorded() > rows);
}

// ---- When it looks

static unsigned looks;

static void count_look(struct thread_cache *cache) {
    (void)cache;
    looks++;
}

static void start_counting_looks(void) {
    start();
    atomic_store_relaxed(&knobs_hooks.window, count_look);
}

// While blocks come and go no free waits for a look.
static void test_looks_after_a_refill(void **state) {
    (void)state;
    start_counting_looks();
    uint64_t random = 7;
    for (unsigned i = 0; i < 100000; i++) {
        void **slot = &slots[random_next(&random) % SLOTS];
        if (*slot == NULL) {
            *slot = alloc(2048 + random_next(&random) % 30000);
            assert_non_null(*slot);
        } else {
            const unsigned before = looks;
            dealloc(*slot);
            assert_int_equal(looks, before);
            *slot = NULL;
        }
    }
    assert_in_range(looks, 4, 100000);
    assert_in_range(slow_paths() / looks, LEARNER_WINDOW_EVENTS, LEARNER_WINDOW_EVENTS + 8);
}

// Where only frees come it waits a while, but not for ever.
static void test_looks_after_many_flushes(void **state) {
    (void)state;
    start_counting_looks();
    static void *blocks[1000];
    for (unsigned i = 0; i < 1000; i++) {
        blocks[i] = alloc(64);
        assert_non_null(blocks[i]);
    }
    looks = 0;
    thread_cache->learner_events = LEARNER_WINDOW_EVENTS;
    for (unsigned i = 0; i < 500; i++) {
        dealloc(blocks[i]);
    }
    assert_int_equal(looks, 0);
    assert_in_range(thread_cache->learner_events, LEARNER_WINDOW_EVENTS + 1,
                    LEARNER_WINDOW_EVENTS + LEARNER_PATIENCE_EVENTS - 1);
    thread_cache->learner_events = LEARNER_WINDOW_EVENTS + LEARNER_PATIENCE_EVENTS - 1;
    for (unsigned i = 500; i < 1000; i++) {
        dealloc(blocks[i]);
    }
    assert_int_equal(looks, 1);
}

// ---- What is written down, and what is asked for memory

// For readers outside, which replay it.
static void test_a_recorded_window_is_what_was_seen(void **state) {
    (void)state;
    start_with_a_class(0);
    look(false);
    struct magazine *magazine = &thread_cache->magazines[SIZE_CLASS_4096];
    const uint32_t capacity = magazine->capacity;
    const uint32_t limit = magazine->limit;
    magazine->signals = (struct class_signals){
        .refills = 61, .flushes = 62, .refilled_blocks = 163, .flushed_blocks = 164};
    fake_os_pass_cpu_ns(1000 * 1000);
    knobs_call(&knobs_hooks.window, thread_cache);
    const uint64_t number = atomic_load_relaxed(&decision_log.recorded);
    assert_int_equal(number, 1);
    const struct recorded *row = &decision_log.windows[number % RECORDED_COUNT];
    assert_int_equal(row->number, number);
    assert_in_range(row->cpu_ns, 1000 * 1000, 2000 * 1000);
    assert_int_equal(row->heap, thread_cache->heap.id);
    assert_int_equal(row->class_index, SIZE_CLASS_4096);
    assert_int_equal(row->capacity, capacity);
    assert_int_equal(row->limit, limit);
    assert_int_equal(row->refills, 61);
    assert_int_equal(row->flushes, 62);
    assert_int_equal(row->refilled_blocks, 163);
    assert_int_equal(row->flushed_blocks, 164);
    assert_true(row->used);
}

// Affordable is a share of the time that the process had a processor since the last round, not of all it ever had.
static void test_a_delay_is_of_the_time_since_the_last_round(void **state) {
    (void)state;
    start();
    delay_hook *const ask = atomic_load_relaxed(&space_hooks.runs_delay);
    struct purge_delay delay = {.ms = 1000};
    uint32_t before_ms = 0;
    for (unsigned round = 0; round < 3; round++) {
        // More was wanted again than may be for nothing; no time went by before the last round.
        delay.early_bytes = 8 * MIB;
        delay.refault_bytes = 8 * MIB;
        fake_os_pass_cpu_ns(round < 2 ? UINT64_C(1000000000) : 0);
        before_ms = delay.ms;
        ask(&delay, 10000);
        assert_true(round == 2 || delay.ms <= before_ms);
    }
    assert_int_equal(delay.ms, 2 * before_ms);
}

// In the child of a fork that is the time since the fork.
static void test_a_delay_after_a_fork(void **state) {
    (void)state;
    start();
    fake_os_pass_cpu_ns(UINT64_C(1000000000));
    struct purge_delay delay = {.ms = 1000,
                                .asked_cpu_ns = UINT64_C(1000000000000),
                                .early_bytes = 8 * MIB,
                                .refault_bytes = 8 * MIB};
    atomic_load_relaxed (&space_hooks.runs_delay)(&delay, 10000);
    assert_in_range(delay.ms, 1, 1000);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_off_decides_nothing),
        cmocka_unit_test(test_learns_what_a_working_set_needs),
        cmocka_unit_test(test_time_without_a_processor_is_no_signal),
        cmocka_unit_test(test_a_class_at_rest_is_not_used),
        cmocka_unit_test(test_shares_are_kept),
        cmocka_unit_test(test_learns_within_a_small_share),
        cmocka_unit_test(test_a_thread_starts_with_a_clock_of_its_own),
        cmocka_unit_test(test_caches_share_a_window),
        cmocka_unit_test(test_no_memory_for_a_window),
        cmocka_unit_test(test_the_clock_rests),
        cmocka_unit_test(test_a_trial_is_not_handed_on),
        cmocka_unit_test(test_a_decay_proves_no_raise),
        cmocka_unit_test(test_a_child_of_fork_has_no_trial),
        cmocka_unit_test(test_a_closed_class_has_no_trial),
        cmocka_unit_test(test_a_class_that_was_idle_grows_again),
        cmocka_unit_test(test_a_raise_in_vain_leaves_no_limit),
        cmocka_unit_test(test_seldom_slow_paths_start_no_clock),
        cmocka_unit_test(test_a_child_of_fork_starts_with_a_clock_of_its_own),
        cmocka_unit_test(test_may_be_switched_off),
        cmocka_unit_test(test_what_was_learned_goes_with_the_option),
        cmocka_unit_test(test_options_bind_what_was_learned),
        cmocka_unit_test(test_options_of_each_group),
        cmocka_unit_test(test_no_cache_grows_above_the_maximum_of_its_group),
        cmocka_unit_test(test_diverted_operations_teach_nothing),
        cmocka_unit_test(test_looks_after_a_refill),
        cmocka_unit_test(test_looks_after_many_flushes),
        cmocka_unit_test(test_a_recorded_window_is_what_was_seen),
        cmocka_unit_test(test_a_delay_is_of_the_time_since_the_last_round),
        cmocka_unit_test(test_a_delay_after_a_fork),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
