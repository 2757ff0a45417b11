// What a thread that ends gives back to the system of what is free in its heap, and in the arena.
#include "isolate.h"

#include <pthread.h>
#include <string.h>

#include "api/alloc.h"
#include "base/bits.h"
#include "config/options.h"
#include "control/check.h"
#include "control/learner.h"
#include "control/stats.h"
#include "counted.h"
#include "fake_os.h"
#include "heap/heap_check.h"
#include "heap/heap_purge.h"
#include "thread/lifecycle.h"

#define BLOCK_BYTES 4096
#define EMPTY_BYTES 1024  // of the block whose slab is empty then
#define LARGE_BYTES (128 * KIB)
#define NS_PER_MS UINT64_C(1000000)

enum { COUNT = 256 };

// Every second block stays out, so that no slab is empty.
static void *blocks[COUNT];

static uint64_t purged_inside(void) {
    return counted(COUNTER_slab_purged_bytes);
}

static uint64_t purged_of_runs(void) {
    return counted(COUNTER_purged_bytes);
}

static uint64_t dirty_bytes(void) {
    struct stats stats;
    stats_collect(&stats);
    return stats.gauge[GAUGE_dirty_bytes];
}

// The thread leaves half of its blocks behind, and an empty run; its heap.
static struct heap *work(void) {
    struct heap *heap = &lifecycle_attach()->heap;
    options.watched_operations = 0;
    for (unsigned i = 0; i < COUNT; i++) {
        blocks[i] = hakmem_alloc(BLOCK_BYTES);
        memset(blocks[i], 1, BLOCK_BYTES);
    }
    for (unsigned i = 0; i < COUNT; i += 2) {
        hakmem_dealloc(blocks[i]);
    }
    void *large = hakmem_alloc(LARGE_BYTES);
    memset(large, 1, LARGE_BYTES);
    hakmem_dealloc(large);
    assert_true(dirty_bytes() >= LARGE_BYTES);
    return heap;
}

// Ends after so much processor time. Returns what it gave back of the pages in its slabs.
static uint64_t end_after(uint64_t cpu_ns) {
    fake_os_pass_cpu_ns(cpu_ns);
    lifecycle_detach();
    assert_int_equal(check_all(), 0);
    return purged_inside();
}

// Of which so many bytes, half a nanosecond each, are 16 thousandths.
static uint64_t enough_ns(uint64_t bytes) {
    return align_up(bytes, 16) / 16 * 500;
}

static void in_a_thread(void *(*function)(void *), void *argument) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, function, argument), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void *take_again(void *heap) {
    assert_ptr_equal(&lifecycle_attach()->heap, heap);
    // Its clock is another one.
    assert_int_equal(thread_cache->heap.purge_delay.asked_cpu_ns, 0);
    for (unsigned i = 0; i < COUNT / 4; i++) {
        memset(hakmem_alloc(BLOCK_BYTES), 2, BLOCK_BYTES);
    }
    return NULL;
}

static void test_a_thread_that_ran_long_leaves_nothing(void **state) {
    (void)state;
    learner_start();
    struct heap *heap = work();
    const uint64_t class_index = size_class_index(EMPTY_BYTES);
    hakmem_dealloc(hakmem_alloc(EMPTY_BYTES));
    assert_int_equal(heap->bins[class_index].slab_count, 1);
    heap->purge_delay.asked_cpu_ns = 1;
    const uint64_t dirty_before = dirty_bytes();
    const uint64_t purged_before = purged_of_runs();
    assert_int_equal(end_after(enough_ns(COUNT * BLOCK_BYTES + dirty_before)),
                     COUNT / 2 * BLOCK_BYTES);
    assert_int_equal(heap->loose_bytes, 0);
    assert_false(heap->put_since_early);
    assert_false(heap->put_since_purge);
    assert_int_equal(dirty_bytes(), 0);
    assert_int_equal(heap->bins[class_index].slab_count, 0);
    assert_true(purged_of_runs() - purged_before >= dirty_before);
    // What goes counts as gone early: wanted again, it is told to the learner.
    assert_int_equal(heap->purge_delay.early_bytes, COUNT / 2 * BLOCK_BYTES);
    in_a_thread(take_again, heap);
    assert_true(heap->purge_delay.refault_bytes >= COUNT / 4 * BLOCK_BYTES);
    for (unsigned i = 1; i < COUNT; i += 2) {
        for (unsigned k = 0; k < BLOCK_BYTES; k++) {
            assert_int_equal(((unsigned char *)blocks[i])[k], 1);
        }
    }
}

// Bringing it again would take more than its share of what it did.
static void test_one_that_did_little_leaves_it_to_the_next(void **state) {
    (void)state;
    learner_start();
    work();
    const uint64_t dirty_before = dirty_bytes();
    assert_int_equal(end_after(enough_ns(COUNT / 2 * BLOCK_BYTES) - 1), 0);
    assert_true(dirty_bytes() >= dirty_before);
}

// All empty runs of the process, or none: a part of them would be a part of many superslabs.
static void test_empty_runs_that_are_many_stay(void **state) {
    (void)state;
    learner_start();
    work();
    void *larges[32];
    for (unsigned i = 0; i < 32; i++) {
        larges[i] = hakmem_alloc(LARGE_BYTES);
        memset(larges[i], 1, LARGE_BYTES);
    }
    for (unsigned i = 0; i < 32; i++) {
        hakmem_dealloc(larges[i]);
    }
    const uint64_t dirty_before = dirty_bytes();
    assert_int_equal(end_after(enough_ns(COUNT / 2 * BLOCK_BYTES)), COUNT / 2 * BLOCK_BYTES);
    assert_true(dirty_bytes() >= dirty_before);
}

// The learner's shortest delay of an hour is a minute.
static void test_delays_that_were_set_count(void **state) {
    (void)state;
    learner_start();
    options.slab_purge_delay_ms = options.purge_delay_ms = 3600000;
    work();
    assert_int_equal(end_after(56249 * NS_PER_MS), 0);
    assert_true(dirty_bytes() != 0);
}

static void test_delays_that_were_set_end(void **state) {
    (void)state;
    learner_start();
    options.slab_purge_delay_ms = options.purge_delay_ms = 3600000;
    work();
    assert_int_equal(end_after(56250 * NS_PER_MS), COUNT / 2 * BLOCK_BYTES);
    assert_int_equal(dirty_bytes(), 0);
}

static void test_nothing_goes_where_nothing_may_be_brought_back(void **state) {
    (void)state;
    learner_start();
    options.refault_permille = 0;
    work();
    assert_int_equal(end_after(UINT64_C(1000000) * NS_PER_MS), 0);
    assert_true(dirty_bytes() != 0);
}

static void test_without_learn_the_options_delays_hold(void **state) {
    (void)state;
    learner_start();
    options.learn = 0;
    work();
    assert_int_equal(end_after(UINT64_C(1000000) * NS_PER_MS), 0);
    assert_true(dirty_bytes() != 0);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_thread_that_ran_long_leaves_nothing),
        cmocka_unit_test(test_one_that_did_little_leaves_it_to_the_next),
        cmocka_unit_test(test_empty_runs_that_are_many_stay),
        cmocka_unit_test(test_delays_that_were_set_count),
        cmocka_unit_test(test_delays_that_were_set_end),
        cmocka_unit_test(test_nothing_goes_where_nothing_may_be_brought_back),
        cmocka_unit_test(test_without_learn_the_options_delays_hold),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
