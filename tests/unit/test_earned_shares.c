// What threads may cache beyond their share of cache_total_bytes, because they work where it is too small.
#include "isolate.h"

#include "config/options.h"
#include "thread/lifecycle.h"
#include "two_caches.h"

#include <pthread.h>

enum { MANY = 512 };

// One of so many threads; nobody has set the total.
static void start_among(uint32_t threads, uint64_t total_bytes) {
    option_store_number(OPTION_cache_total_bytes, total_bytes, OPTION_ORIGIN_DEFAULT);
    options.cache_heap_bytes = 4 * MIB;
    options.cache_class_bytes = 256 * KIB;
    options.learn = 0;
    atomic_store_relaxed(&cache_count_in_use, threads);
    start();
}

// In each round the class refills and overflows, which is asked of no share here to have room for.
static void work(struct thread_cache *by, uint64_t class_index, unsigned rounds) {
    void *held[200];
    for (unsigned round = 0; round < rounds; round++) {
        for (unsigned i = 0; i < ARRAY_COUNT(held); i++) {
            held[i] = take_from(by, class_index);
            assert_non_null(held[i]);
        }
        for (unsigned i = 0; i < ARRAY_COUNT(held); i++) {
            give_to(by, class_index, held[i]);
        }
    }
    check();
}

// Rounds with blocks of 1 KiB that earn a step, where the class may hold 8 of them.
enum { STEP_ROUNDS = 64 * CAPACITY_EARNED_STEP / KIB / 16 };

static void test_a_thread_that_works_on_earns_more(void **state) {
    (void)state;
    start_among(MANY, 32 * MIB);
    const uint64_t share = 32 * MIB / MANY;
    uint32_t before = 0;
    unsigned rounds = 0;
    while (share + cache->claim.earned_bytes < CAPACITY_EARNED_BYTES) {
        work(cache, SIZE_CLASS_1024, 1);
        rounds++;
        assert_in_range(cache->claim.earned_bytes, 0, rounds * (uint64_t)400 * KIB / 64);
        assert_int_equal(cache->claim.earned_bytes % CAPACITY_EARNED_STEP, 0);
        assert_true(cache->capacity_bytes <= share + cache->claim.earned_bytes);
        assert_true(capacity(SIZE_CLASS_1024) >= before);
        before = capacity(SIZE_CLASS_1024);
        assert_true(rounds <= 2 * STEP_ROUNDS * CAPACITY_EARNED_BYTES / CAPACITY_EARNED_STEP);
    }
    work(cache, SIZE_CLASS_1024, 2 * STEP_ROUNDS);
    // As many as in a share of that size: a sixteenth of it.
    assert_int_equal(capacity(SIZE_CLASS_1024), 64);
    assert_int_equal(share + cache->claim.earned_bytes, CAPACITY_EARNED_BYTES);
}

static void test_little_work_earns_nothing(void **state) {
    (void)state;
    start_among(MANY, 32 * MIB);
    work(cache, SIZE_CLASS_1024, STEP_ROUNDS / 2);
    assert_int_equal(cache->claim.earned_bytes, 0);
    assert_true(cache->claim.worked_bytes > 0);
}

// Blocks for which a share has no room at all earn it as well.
static void test_a_class_that_is_not_cached_earns(void **state) {
    (void)state;
    start_among(MANY, 32 * MIB);
    unsigned calls = 0;
    for (; calls < 100000 && capacity(SIZE_CLASS_49152) == 0; calls += 2) {
        give(SIZE_CLASS_49152, take(SIZE_CLASS_49152));
    }
    assert_in_range(capacity(SIZE_CLASS_49152), 1, 2);
    assert_true(cache->claim.earned_bytes <= calls * (uint64_t)48 * KIB / 64);
    check();
}

// Where the share is as large as anything earned, there is nothing to earn.
static void test_a_large_share_earns_nothing(void **state) {
    (void)state;
    start_among(32, 32 * MIB);
    work(cache, SIZE_CLASS_1024, 2 * STEP_ROUNDS);
    assert_int_equal(cache->claim.earned_bytes, 0);
    assert_int_equal(cache->claim.worked_bytes, 0);
}

static void test_all_threads_together_earn_so_much(void **state) {
    (void)state;
    start_among(1, 64 * KIB);
    for (unsigned i = 0; i < 10; i++) {
        work(cache, SIZE_CLASS_1024, STEP_ROUNDS);
        work(other, SIZE_CLASS_1024, STEP_ROUNDS);
    }
    const uint64_t together = cache->claim.earned_bytes + other->claim.earned_bytes;
    assert_int_equal(together, CAPACITY_EARNED_FACTOR * 64 * KIB);
    assert_true(other->claim.earned_bytes >= 32 * KIB);
    // What one gives back another may earn.
    capacity_forfeit(&other->claim, other->capacity_bytes);
    work(cache, SIZE_CLASS_1024, 20 * STEP_ROUNDS);
    assert_int_equal(cache->claim.earned_bytes, together);
    // In the child of a fork that is left to the thread that is there.
    capacity_only(true, &other->claim, other->capacity_bytes, 0);
    work(other, SIZE_CLASS_1024, 20 * STEP_ROUNDS);
    assert_int_equal(other->claim.earned_bytes, together);
}

// So that the shares of the others stay what they are.
static void test_what_is_earned_does_not_count(void **state) {
    (void)state;
    start_among(1, 128 * KIB);
    options.cache_class_bytes = 4 * MIB;
    work(cache, SIZE_CLASS_1024, 20 * STEP_ROUNDS);
    work(cache, SIZE_CLASS_512, 20 * STEP_ROUNDS);
    work(cache, SIZE_CLASS_4096, 10);
    work(cache, SIZE_CLASS_2048, 10);
    const uint64_t earned = cache->claim.earned_bytes;
    assert_int_equal(earned, CAPACITY_EARNED_FACTOR * 128 * KIB);
    assert_true(cache->capacity_bytes > 256 * KIB);
    assert_false(capacity_is_overdrawn());
    const uint64_t room = 128 * KIB - capacity_counted(&cache->claim, cache->capacity_bytes);
    struct capacity_claim none = {0};
    capacity_join(&none, room);
    assert_false(capacity_is_overdrawn());
    capacity_join(&none, 1);
    assert_true(capacity_is_overdrawn());
    capacity_leave(&none, room + 1);
    atomic_store_relaxed(&cache_count_in_use, 1);
    // In the child of a fork as before it.
    capacity_only(true, &cache->claim, cache->capacity_bytes, room);
    assert_false(capacity_is_overdrawn());
    work(other, SIZE_CLASS_1024, 20 * STEP_ROUNDS);
    assert_int_equal(other->claim.earned_bytes, 0);
    capacity_only(true, &cache->claim, cache->capacity_bytes, room + 1);
    assert_true(capacity_is_overdrawn());
    capacity_only(true, &cache->claim, cache->capacity_bytes, 0);
    // Without it all counts.
    capacity_forfeit(&cache->claim, cache->capacity_bytes);
    assert_true(capacity_is_overdrawn());
    cache_decay(cache);
    assert_int_equal(cache->capacity_bytes, 0);
    assert_false(capacity_is_overdrawn());
}

static void test_a_total_that_was_set_is_kept(void **state) {
    (void)state;
    start_among(MANY, 32 * MIB);
    work(cache, SIZE_CLASS_1024, 100 * STEP_ROUNDS);
    assert_true(cache->claim.earned_bytes >= 512 * KIB);
    work(cache, SIZE_CLASS_512, 10);
    work(cache, SIZE_CLASS_2048, 10);
    assert_true(cache->capacity_bytes > 2 * 32 * MIB / MANY);
    assert_true(options_set("cache_total_bytes", "32M"));
    cache_decay(cache);
    assert_int_equal(cache->claim.earned_bytes, 0);
    assert_int_equal(cache->capacity_bytes, 0);
    work(cache, SIZE_CLASS_1024, 100 * STEP_ROUNDS);
    assert_int_equal(cache->claim.earned_bytes, 0);
    assert_true(cache->capacity_bytes <= 32 * MIB / MANY);
}

static struct thread_cache *worker_cache;
static uint64_t earned_by_worker, earned_at_start;

static void *work_as_thread(void *unused) {
    worker_cache = lifecycle_attach();
    earned_at_start = worker_cache->claim.earned_bytes;
    atomic_store_relaxed(&cache_count_in_use, MANY);
    options.watched_operations = 0;
    work(worker_cache, SIZE_CLASS_1024, 4 * STEP_ROUNDS);
    earned_by_worker = worker_cache->claim.earned_bytes;
    atomic_store_relaxed(&cache_count_in_use, 2);
    return unused;
}

static void run_worker(void) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, work_as_thread, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(lifecycle_check(), 0);
}

// What a thread earned the next one has if it comes at once. Meanwhile others may earn it.
static void test_what_an_ended_thread_had_earned(void **state) {
    (void)state;
    start_among(1, 32 * MIB);
    lifecycle_start();
    require(lifecycle_attach() != NULL);
    run_worker();
    const uint64_t earned = earned_by_worker;
    assert_int_equal(earned_at_start, 0);
    assert_true(earned > 0);
    assert_int_equal(capacity_earned(), 0);
    worker_cache->passed_ticks = os_ticks();
    run_worker();
    assert_int_equal(earned_at_start, earned);
    assert_true(earned_by_worker > earned);
    worker_cache->passed_ticks = os_ticks() - 2 * OS_TICKS_PACE;
    run_worker();
    assert_int_equal(earned_at_start, 0);
    assert_true(earned_by_worker > 0);
    // Others have earned it all.
    struct capacity_claim others = {.earned_bytes = CAPACITY_EARNED_FACTOR * 32 * MIB};
    capacity_join(&others, 0);
    worker_cache->passed_ticks = os_ticks();
    run_worker();
    assert_int_equal(earned_at_start, 0);
    assert_int_equal(earned_by_worker, 0);
    capacity_leave(&others, 0);
    assert_int_equal(capacity_earned(), 0);
    // The total was set meanwhile.
    worker_cache->claim.earned_bytes = earned;
    worker_cache->passed_ticks = os_ticks();
    assert_true(options_set("cache_total_bytes", "32M"));
    run_worker();
    assert_int_equal(earned_at_start, 0);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_thread_that_works_on_earns_more),
        cmocka_unit_test(test_little_work_earns_nothing),
        cmocka_unit_test(test_a_class_that_is_not_cached_earns),
        cmocka_unit_test(test_a_large_share_earns_nothing),
        cmocka_unit_test(test_all_threads_together_earn_so_much),
        cmocka_unit_test(test_what_is_earned_does_not_count),
        cmocka_unit_test(test_a_total_that_was_set_is_kept),
        cmocka_unit_test(test_what_an_ended_thread_had_earned),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
