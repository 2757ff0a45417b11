// What the learner's limits of a class are beside what it reaches by itself: more after a raise, less after a cut.
#include "isolate.h"

#include "api/alloc.h"
#include "config/options.h"
#include "control/check.h"
#include "control/learner.h"
#include "fake_os.h"
#include "learned.h"
#include "thread/lifecycle.h"

static knobs_hook *learn;

// It looks when a test says so.
static void start(void) {
    learner_start();
    learn = atomic_load_relaxed(&knobs_hooks.window);
    atomic_store_relaxed(&knobs_hooks.window, NULL);
    assert_non_null(lifecycle_attach());
    options.watched_operations = 0;
}

static void end_thread(void) {
    lifecycle_detach();
    thread_cache = (struct thread_cache *)(uintptr_t)&cache_of_new_thread;
    assert_non_null(lifecycle_attach());
}

static struct magazine *magazine_of(uint64_t class_index) {
    return &thread_cache->magazines[class_index];
}

static void look(void) {
    fake_os_pass_cpu_ns(1000 * 1000);
    learn(thread_cache);
}

// In the next window so many of each, of a block each.
static void come(uint64_t class_index, uint16_t refills_and_flushes) {
    magazine_of(class_index)->signals = (struct class_signals){
        refills_and_flushes, refills_and_flushes, refills_and_flushes, refills_and_flushes};
}

static void look_at(uint64_t class_index, uint16_t refills_and_flushes) {
    come(class_index, refills_and_flushes);
    look();
}

// Until there are so many decisions.
static void look_until(uint64_t class_index, uint64_t count) {
    for (unsigned i = 0; decided() < count; i++) {
        assert_in_range(i, 0, 20);
        look_at(class_index, 64);
    }
}

static void test_a_limit_is_beyond_the_default_or_a_cut(void **state) {
    (void)state;
    options.cap_max_tiny = 256 * KIB;
    assert_int_equal(capacity_limit(128 * KIB, SIZE_CLASS_128, 0), 64);
    assert_int_equal(capacity_limit(128 * KIB, SIZE_CLASS_128, 130), 130);
    assert_int_equal(capacity_limit(4 * MIB, SIZE_CLASS_128, 130), 2048);
    assert_int_equal(capacity_limit(4 * MIB, SIZE_CLASS_128, 130 | CAPACITY_CUT), 130);
    // The option bounds all of them.
    assert_int_equal(capacity_limit(128 * KIB, SIZE_CLASS_128, 4000), 2048);
    assert_int_equal(capacity_limit(4 * MIB, SIZE_CLASS_128, 4000 | CAPACITY_CUT), 2048);
    assert_int_equal(capacity_limit(128 * KIB, SIZE_CLASS_4096, 100), 100);
}

// Of 250 threads each has little; what one has learned then is not what it keeps when the others have ended.
static void test_a_raise_in_a_small_share_does_not_bind_in_a_large_one(void **state) {
    (void)state;
    start();
    options.cap_step_tiny = 100;
    options.cache_total_bytes = 128 * KIB;
    assert_int_equal(grow(SIZE_CLASS_128, 500), 64);
    look_until(SIZE_CLASS_128, 1);
    assert_int_equal(grow(SIZE_CLASS_128, 500), 128);
    for (unsigned i = 0; i < 4; i++) {
        magazine_of(SIZE_CLASS_128)->signals = (struct class_signals){1, 1, 63, 63};
        look();
    }
    assert_int_equal(decided(), 1);
    assert_int_equal(magazine_of(SIZE_CLASS_128)->limit, 128);
    options.cache_total_bytes = 32 * MIB;
    assert_int_equal(grow(SIZE_CLASS_128, 5000), 2048);
    // Nor is it forgotten there.
    options.cache_total_bytes = 128 * KIB;
    cache_adjust(thread_cache);
    assert_int_equal(grow(SIZE_CLASS_128, 500), 128);
    assert_int_equal(check_all(), 0);
}

// A raise is on trial of a class that had learned `limit`, and has begun anew and grown to that.
static struct magazine *begin_anew(uint32_t limit) {
    start();
    options.cache_class_bytes = 8 * KIB;
    dealloc(alloc(4096));
    struct magazine *magazine = magazine_of(SIZE_CLASS_4096);
    assert_int_equal(magazine->capacity, 2);
    magazine->limit = limit;
    assert_int_equal(grow(SIZE_CLASS_4096, 9), 3);
    look_until(SIZE_CLASS_4096, 1);
    assert_int_equal(magazine->limit & ~CAPACITY_CUT, 6);
    return magazine;
}

static void test_a_raise_in_vain_leaves_the_limit_from_before(void **state) {
    (void)state;
    struct magazine *magazine = begin_anew(3);
    assert_int_equal(grow(SIZE_CLASS_4096, 9), 6);
    look_until(SIZE_CLASS_4096, 2);
    assert_int_equal(magazine->limit, 3);
    assert_int_equal(magazine->capacity, 3);
}

// So it is where nobody judged it.
static void test_a_raise_that_was_not_judged_leaves_the_limit_from_before(void **state) {
    (void)state;
    struct magazine *magazine = begin_anew(3 | CAPACITY_CUT);
    assert_int_equal(magazine->limit, 6 | CAPACITY_CUT);
    end_thread();
    look();
    assert_int_equal(magazine->limit, 3 | CAPACITY_CUT);
    assert_int_equal(magazine->capacity, 3);
}

// Blocks of 16 bytes: a limit that has no room in 16 bits.
static void test_a_large_limit_is_left_as_well(void **state) {
    (void)state;
    start();
    options.cache_class_bytes = 1200 * KIB;
    assert_int_equal(grow(SIZE_CLASS_16, 90000), 1200 * KIB / 16);
    struct magazine *magazine = magazine_of(SIZE_CLASS_16);
    magazine->limit = 1200 * KIB / 16;
    look_until(SIZE_CLASS_16, 1);
    assert_int_equal(magazine->limit, 2 * MIB / 16);
    end_thread();
    look();
    assert_int_equal(magazine->limit, 1200 * KIB / 16);
}

// A class of 256 KiB that hardly takes the slow path, in a cache with no room for another's raise, loses half of it to that one.
static void cut(void) {
    start();
    options.cache_heap_bytes = options.cache_total_bytes = 272 * KIB;
    assert_int_equal(grow(SIZE_CLASS_16, 20000), 256 * KIB / 16);
    dealloc(alloc(4096));
    for (unsigned i = 0; decided() == 0; i++) {
        assert_in_range(i, 0, 20);
        come(SIZE_CLASS_16, 1);
        look_at(SIZE_CLASS_4096, 64);
    }
    assert_int_equal(magazine_of(SIZE_CLASS_16)->capacity, 128 * KIB / 16);
    // The others have ended; what it would reach by itself it does not take at once.
    options.cache_total_bytes = 32 * MIB;
    options.cache_heap_bytes = 4 * MIB;
    assert_int_equal(grow(SIZE_CLASS_16, 20000), 128 * KIB / 16);
    come(SIZE_CLASS_16, 0);
}

static void check_is_no_cut(void) {
    assert_int_equal(magazine_of(SIZE_CLASS_16)->limit, 0);
    assert_int_equal(grow(SIZE_CLASS_16, 20000), 256 * KIB / 16);
    assert_int_equal(check_all(), 0);
}

// From when on it may be taken from again it has what it would have by itself; whoever looks is told.
static void test_a_cut_ends_with_its_pause(void **state) {
    (void)state;
    cut();
    for (unsigned i = 0; i < 15; i++) {
        look();
        assert_int_equal(magazine_of(SIZE_CLASS_16)->limit, 128 * KIB / 16 | CAPACITY_CUT);
    }
    const uint64_t count = decided();
    look();
    assert_int_equal(decided(), count + 1);
    const struct decision *row = &decision_log.decisions[decided() % DECISION_COUNT];
    assert_int_equal(row->class_index, SIZE_CLASS_16);
    assert_int_equal(row->knob, POLICY_KNOB_cap);
    assert_int_equal(row->signal, POLICY_SIGNAL_density);
    assert_int_equal(row->from, 128 * KIB / 16);
    assert_int_equal(row->to, 256 * KIB / 16);
    assert_int_equal(row->value, 0);
    check_is_no_cut();
}

static void test_a_cut_ends_with_its_thread(void **state) {
    (void)state;
    cut();
    end_thread();
    look();
    look();
    check_is_no_cut();
}

// What was learned of the class since stays.
static void test_a_raise_of_a_cut_stays_when_the_cut_ends(void **state) {
    (void)state;
    cut();
    const uint32_t limit = 200 * KIB / 16;
    magazine_of(SIZE_CLASS_16)->limit = limit | CAPACITY_CUT;
    options.cache_class_bytes = 64 * KIB;
    for (unsigned i = 0; i < 16; i++) {
        look();
    }
    assert_int_equal(magazine_of(SIZE_CLASS_16)->limit, limit);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_limit_is_beyond_the_default_or_a_cut),
        cmocka_unit_test(test_a_raise_in_a_small_share_does_not_bind_in_a_large_one),
        cmocka_unit_test(test_a_raise_in_vain_leaves_the_limit_from_before),
        cmocka_unit_test(test_a_raise_that_was_not_judged_leaves_the_limit_from_before),
        cmocka_unit_test(test_a_large_limit_is_left_as_well),
        cmocka_unit_test(test_a_cut_ends_with_its_pause),
        cmocka_unit_test(test_a_cut_ends_with_its_thread),
        cmocka_unit_test(test_a_raise_of_a_cut_stays_when_the_cut_ends),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
