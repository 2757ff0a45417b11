// What the learner's limits of a class are beside what it reaches by itself: more after a raise, less after a cut.
#include "isolate.h"

#include "api/alloc.h"
#include "config/options.h"
#include "control/check.h"
#include "control/learner.h"
#include "fake_os.h"
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

static uint64_t decided(void) {
    return atomic_load_relaxed(&decision_log.decided);
}

static struct magazine *magazine_of(uint64_t class_index) {
    return &thread_cache->magazines[class_index];
}

// Blocks of the class come and go in bulk: its capacity grows as far as it may by itself.
static uint32_t grow(uint64_t class_index, unsigned count) {
    static void *blocks[20000];
    assert_in_range(count, 1, ARRAY_COUNT(blocks));
    for (unsigned round = 0; round < 20; round++) {
        for (unsigned i = 0; i < count; i++) {
            blocks[i] = alloc(size_classes[class_index].block_bytes);
        }
        for (unsigned i = 0; i < count; i++) {
            dealloc(blocks[i]);
        }
    }
    return magazine_of(class_index)->capacity;
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
    options.cache_total_bytes = 128 * KIB;
    assert_int_equal(grow(SIZE_CLASS_128, 500), 64);
    look_until(SIZE_CLASS_128, 1);
    assert_int_equal(grow(SIZE_CLASS_128, 500), 128);
    for (unsigned i = 0; i < 4; i++) {
        magazine_of(SIZE_CLASS_128)->signals.refills = 1;
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

// A class that has begun anew has not grown to its limit yet: that is what a raise in vain leaves, not what it had grown to.
static void test_a_raise_in_vain_leaves_the_limit_from_before(void **state) {
    (void)state;
    start();
    options.cache_class_bytes = 8 * KIB;
    dealloc(alloc(4096));
    struct magazine *magazine = magazine_of(SIZE_CLASS_4096);
    assert_int_equal(magazine->capacity, 2);
    magazine->limit = 3;
    look_until(SIZE_CLASS_4096, 1);
    assert_int_equal(magazine->limit, 4);
    assert_int_equal(grow(SIZE_CLASS_4096, 9), 4);
    look_until(SIZE_CLASS_4096, 2);
    assert_int_equal(magazine->limit, 3);
    assert_int_equal(magazine->capacity, 2);
}

// So it is where nobody judged it.
static void test_a_raise_that_was_not_judged_leaves_the_limit_from_before(void **state) {
    (void)state;
    start();
    options.cache_class_bytes = 8 * KIB;
    dealloc(alloc(4096));
    struct magazine *magazine = magazine_of(SIZE_CLASS_4096);
    magazine->limit = 3 | CAPACITY_CUT;
    look_until(SIZE_CLASS_4096, 1);
    assert_int_equal(magazine->limit, 4 | CAPACITY_CUT);
    end_thread();
    look();
    assert_int_equal(magazine->limit, 3 | CAPACITY_CUT);
    assert_int_equal(magazine->capacity, 2);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_limit_is_beyond_the_default_or_a_cut),
        cmocka_unit_test(test_a_raise_in_a_small_share_does_not_bind_in_a_large_one),
        cmocka_unit_test(test_a_raise_in_vain_leaves_the_limit_from_before),
        cmocka_unit_test(test_a_raise_that_was_not_judged_leaves_the_limit_from_before),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
