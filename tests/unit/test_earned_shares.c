// What threads may cache beyond their share of cache_total_bytes, because they work where it is too small.
#include "isolate.h"

#include "config/options.h"
#include "os/os.h"
#include "thread/fork.h"
#include "thread/lifecycle.h"
#include "two_caches.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MANY = 512 };

// What tests have counted of caches that there are not.
static struct capacity_claim nothing_earned;
static uint64_t joined_bytes;

static void join(uint64_t bytes) {
    capacity_join(&nothing_earned, bytes, false);
    joined_bytes += bytes;
}

// The two sums are those of the caches that there are: the two of every test, which no thread has, and those of threads.
static void check_sums(void) {
    uint64_t earned = cache->claim.earned_bytes + other->claim.earned_bytes;
    uint64_t counts = capacity_counted(&cache->claim, cache->capacity_bytes) +
                      capacity_counted(&other->claim, other->capacity_bytes) + joined_bytes;
    for (struct thread_cache *each = lifecycle_caches(); each != NULL; each = each->next_all) {
        if (atomic_load_relaxed(&each->state) == CACHE_IN_USE) {
            earned += each->claim.earned_bytes;
            counts += capacity_counted(&each->claim, each->capacity_bytes);
        }
    }
    assert_int_equal(capacity_sum_earned(), earned);
    assert_int_equal(capacity_sum_counted(), counts);
}

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
    check_sums();
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

static void expect_nothing_earned(uint64_t class_index) {
    work(cache, class_index, 4 * STEP_ROUNDS);
    assert_int_equal(cache->claim.earned_bytes, 0);
    assert_int_equal(cache->claim.worked_bytes, 0);
}

// Where the share is as large as anything earned, there is nothing to earn, also while others have used up the total.
static void test_a_large_share_earns_nothing(void **state) {
    (void)state;
    start_among(32, 32 * MIB);
    expect_nothing_earned(SIZE_CLASS_1024);
    join(40 * MIB);
    atomic_store_relaxed(&cache_count_in_use, 16);
    assert_true(capacity_is_overdrawn());
    expect_nothing_earned(SIZE_CLASS_512);
}

// A class that no share would let have more.
static void test_what_no_share_would_help_earns_nothing(void **state) {
    (void)state;
    start_among(MANY, 32 * MIB);
    cache->magazines[SIZE_CLASS_512].limit = 2 | CAPACITY_CUT;
    work(cache, SIZE_CLASS_512, 10);
    assert_int_equal(capacity(SIZE_CLASS_512), 2);
    cache->claim.worked_bytes = 0;
    expect_nothing_earned(SIZE_CLASS_512);
    options.cache_class_bytes = 32 * KIB;
    expect_nothing_earned(SIZE_CLASS_16384);
    assert_int_equal(capacity(SIZE_CLASS_16384), 0);
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
    join(room);
    assert_false(capacity_is_overdrawn());
    join(1);
    assert_true(capacity_is_overdrawn());
    check_sums();
    // In the child of a fork as before it, but for other threads.
    capacity_only(true, &cache->claim, cache->capacity_bytes, room);
    assert_false(capacity_is_overdrawn());
    capacity_only(true, &cache->claim, cache->capacity_bytes, room + 1);
    assert_true(capacity_is_overdrawn());
    capacity_only(true, &cache->claim, cache->capacity_bytes, 0);
    assert_false(capacity_is_overdrawn());
    // Without it all counts.
    capacity_forfeit(&cache->claim, cache->capacity_bytes);
    assert_true(capacity_is_overdrawn());
    cache_decay(cache);
    assert_int_equal(cache->capacity_bytes, 0);
    assert_false(capacity_is_overdrawn());
}

// Threads were few, and are many again: what is beyond two shares goes, however much was earned.
static void test_earnings_do_not_stretch_the_bound(void **state) {
    (void)state;
    start_among(MANY, 32 * MIB);
    work(cache, SIZE_CLASS_1024, 100 * STEP_ROUNDS);
    const uint64_t earned = cache->claim.earned_bytes;
    assert_true(earned >= 512 * KIB);
    options.cache_class_bytes = 4 * MIB;
    atomic_store_relaxed(&cache_count_in_use, 8);
    const uint64_t share = 32 * MIB / MANY;
    for (uint64_t i = SIZE_CLASS_16; cache->capacity_bytes <= 2 * share + earned; i++) {
        work(cache, i, 10);
    }
    assert_true(cache->capacity_bytes <= 2 * (share + earned));
    cache_decay(cache);
    assert_true(cache->capacity_bytes > 0);
    atomic_store_relaxed(&cache_count_in_use, MANY);
    cache_decay(cache);
    assert_int_equal(cache->capacity_bytes, 0);
    assert_int_equal(cache->claim.earned_bytes, earned);
    check_sums();
}

static void test_a_total_that_was_set_is_kept(void **state) {
    (void)state;
    start_among(MANY, 32 * MIB);
    work(cache, SIZE_CLASS_1024, 100 * STEP_ROUNDS);
    work(other, SIZE_CLASS_1024, 100 * STEP_ROUNDS);
    assert_true(cache->claim.earned_bytes >= 512 * KIB && other->claim.earned_bytes >= 512 * KIB);
    // It has less than two shares by now.
    assert_in_range(cache->capacity_bytes, 1, 2 * 32 * MIB / MANY);
    assert_true(options_set("cache_total_bytes", "32M"));
    cache_decay(cache);
    assert_int_equal(cache->claim.earned_bytes, 0);
    assert_int_equal(cache->capacity_bytes, 0);
    work(cache, SIZE_CLASS_1024, 100 * STEP_ROUNDS);
    assert_int_equal(cache->claim.earned_bytes, 0);
    assert_true(cache->capacity_bytes <= 32 * MIB / MANY);
    // What the other one has, who sleeps, counts now.
    assert_false(capacity_is_overdrawn());
    assert_true(options_set("cache_total_bytes", "512K"));
    assert_true(capacity_sum_counted() < 512 * KIB);
    assert_true(capacity_is_overdrawn());
}

// ---- Threads

static struct thread_cache *worker_cache;
static struct capacity_claim claim_at_start, claim_at_end;
static uint64_t bytes_at_start;

static void be_worker(void) {
    worker_cache = lifecycle_attach();
    claim_at_start = worker_cache->claim;
    bytes_at_start = worker_cache->capacity_bytes;
    atomic_store_relaxed(&cache_count_in_use, MANY);
    work(worker_cache, SIZE_CLASS_1024, 8 * STEP_ROUNDS);
    claim_at_end = worker_cache->claim;
    atomic_store_relaxed(&cache_count_in_use, 2);
}

// A thread, played by the calling one, after another that ended `ticks` ago. Whether it came soon, however long this machine let it
// wait.
static bool run_worker(uint64_t ticks) {
    struct thread_cache *mine = thread_cache;
    thread_cache = (struct thread_cache *)(uintptr_t)&cache_of_new_thread;
    if (worker_cache != NULL) {
        worker_cache->passed_ticks = os_ticks() - ticks;
    }
    be_worker();
    const bool came_soon = worker_cache->came_soon;
    lifecycle_detach();
    thread_cache = mine;
    assert_int_equal(lifecycle_check(), 0);
    check_sums();
    return came_soon;
}

static void start_with_threads(void) {
    start_among(1, 32 * MIB);
    lifecycle_start();
    require(lifecycle_attach() != NULL);
}

enum { LATE = 2 * OS_TICKS_PACE };

// What a thread earned the next one has if it comes at once. Meanwhile others may earn it.
static void test_the_next_thread_has_what_one_earned(void **state) {
    (void)state;
    start_with_threads();
    uint64_t earned;
    do {
        run_worker(LATE);
        earned = claim_at_end.earned_bytes;
        assert_true(earned >= 2 * CAPACITY_EARNED_STEP && claim_at_end.worked_bytes > 0);
        assert_int_equal(capacity_sum_earned(), 0);
    } while (!run_worker(0));
    assert_int_equal(claim_at_start.earned_bytes, earned);
    assert_int_equal(claim_at_start.worked_bytes, 0);
    assert_true(bytes_at_start > 0);
    assert_true(claim_at_end.earned_bytes > earned);
    // One that comes much later has no more, and begins anew.
    run_worker(LATE);
    assert_int_equal(claim_at_start.earned_bytes, 0);
    assert_int_equal(bytes_at_start, 0);
    assert_false(claim_at_end.has_lapsed);
    assert_true(claim_at_end.earned_bytes > 0);
}

static void test_the_next_thread_has_what_others_left(void **state) {
    (void)state;
    start_with_threads();
    bool came_soon;
    do {
        run_worker(LATE);
        assert_true(claim_at_end.earned_bytes >= 2 * CAPACITY_EARNED_STEP);
        // All but a step and a half.
        other->claim.earned_bytes =
            CAPACITY_EARNED_FACTOR * 32 * MIB - CAPACITY_EARNED_STEP - CAPACITY_EARNED_STEP / 2;
        capacity_join(&other->claim, 0, true);
        assert_int_equal(capacity_sum_earned(), other->claim.earned_bytes);
        came_soon = run_worker(0);
        capacity_leave(&other->claim, 0);
        other->claim.earned_bytes = 0;
    } while (!came_soon);
    assert_int_equal(claim_at_start.earned_bytes, CAPACITY_EARNED_STEP);
    assert_int_equal(bytes_at_start, 0);
    // The total was set meanwhile.
    do {
        option_store_number(OPTION_cache_total_bytes, 32 * MIB, OPTION_ORIGIN_DEFAULT);
        run_worker(LATE);
        assert_true(claim_at_end.earned_bytes > 0);
        assert_true(options_set("cache_total_bytes", "32M"));
    } while (!run_worker(0));
    assert_int_equal(claim_at_start.earned_bytes, 0);
    assert_int_equal(claim_at_end.earned_bytes, 0);
}

static void *tell_id(void *id) {
    *(uint32_t *)id = os_thread_id();
    return NULL;
}

static uint32_t id_of_a_gone_thread(void) {
    uint32_t id = 0;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, tell_id, &id), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    // The kernel tells of the end before it is over.
    while (!os_thread_is_gone((uint64_t)getpid(), id)) {
    }
    return id;
}

// A thread that ended and told nobody.
static void test_the_cache_of_a_gone_thread_has_earned_nothing(void **state) {
    (void)state;
    start_with_threads();
    struct thread_cache *mine = thread_cache;
    thread_cache = (struct thread_cache *)(uintptr_t)&cache_of_new_thread;
    be_worker();
    thread_cache = mine;
    struct thread_cache *abandoned = worker_cache;
    assert_true(abandoned->claim.earned_bytes > 0);
    abandoned->thread_id = id_of_a_gone_thread();
    run_worker(0);
    assert_ptr_equal(worker_cache, abandoned);
    assert_int_equal(claim_at_start.earned_bytes, 0);
    assert_int_equal(bytes_at_start, 0);
    assert_int_equal(capacity_sum_earned(), 0);
}

static void *work_and_wait(void *barrier) {
    be_worker();
    pthread_barrier_wait(barrier);
    pthread_barrier_wait(barrier);
    return NULL;
}

// The child of a fork has the calling thread's earnings alone, and takes an orphan without.
static int live_as_child(uint64_t own_bytes) {
    require(capacity_sum_earned() == own_bytes);
    struct thread_cache *orphan = worker_cache;
    require(atomic_load_relaxed(&orphan->state) == CACHE_ORPHAN && orphan->claim.earned_bytes > 0);
    struct thread_cache *mine = thread_cache;
    thread_cache = (struct thread_cache *)(uintptr_t)&cache_of_new_thread;
    // However soon it comes.
    orphan->passed_ticks = os_ticks();
    be_worker();
    lifecycle_detach();
    thread_cache = mine;
    require(worker_cache == orphan && claim_at_start.earned_bytes == 0);
    require(bytes_at_start == 0);
    require(claim_at_end.earned_bytes > 0);
    require(capacity_sum_earned() == own_bytes);
    require(lifecycle_check() == 0);
    return 0;
}

static void test_a_fork_beside_a_thread_that_earned(void **state) {
    (void)state;
    start_with_threads();
    atomic_store_relaxed(&cache_count_in_use, MANY);
    work(thread_cache, SIZE_CLASS_1024, 8 * STEP_ROUNDS);
    const uint64_t own_bytes = thread_cache->claim.earned_bytes;
    assert_true(own_bytes > 0);
    atomic_store_relaxed(&cache_count_in_use, 1);
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, work_and_wait, &barrier), 0);
    pthread_barrier_wait(&barrier);
    fork_prepare();
    const pid_t child = fork();
    if (child == 0) {
        fork_child();
        _exit(live_as_child(own_bytes));
    }
    fork_parent();
    int status = -1;
    assert_true(waitpid(child, &status, 0) == child);
    assert_int_equal(status, 0);
    pthread_barrier_wait(&barrier);
    assert_int_equal(pthread_join(thread, NULL), 0);
    check_sums();
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_thread_that_works_on_earns_more),
        cmocka_unit_test(test_little_work_earns_nothing),
        cmocka_unit_test(test_a_class_that_is_not_cached_earns),
        cmocka_unit_test(test_a_large_share_earns_nothing),
        cmocka_unit_test(test_what_no_share_would_help_earns_nothing),
        cmocka_unit_test(test_all_threads_together_earn_so_much),
        cmocka_unit_test(test_what_is_earned_does_not_count),
        cmocka_unit_test(test_earnings_do_not_stretch_the_bound),
        cmocka_unit_test(test_a_total_that_was_set_is_kept),
        cmocka_unit_test(test_the_next_thread_has_what_one_earned),
        cmocka_unit_test(test_the_next_thread_has_what_others_left),
        cmocka_unit_test(test_the_cache_of_a_gone_thread_has_earned_nothing),
        cmocka_unit_test(test_a_fork_beside_a_thread_that_earned),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
