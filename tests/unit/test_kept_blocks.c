// Blocks that wait in caches without a thread: to the books, to a fork, where one was freed twice; and the learner, who lets
// them wait.
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/start.h"
#include "control/leaks.h"
#include "control/learner.h"
#include "heap/misuse.h"
#include "successors.h"
#include "thread/fork.h"

// ---- The books

static void test_kept_blocks_are_cached_to_the_books(void **state) {
    (void)state;
    start();
    struct thread_cache *cache = leave_blocks();
    struct stats stats;
    stats_collect(&stats);
    assert_int_equal(stats.gauge[GAUGE_live_blocks], 0);
    assert_int_equal(stats.gauge[GAUGE_live_bytes], 0);
    assert_int_equal(stats.class[size_class_index(BYTES)].cached_blocks, cached(cache));
    assert_int_equal(stats.gauge[GAUGE_heaps_in_use], 1);
    assert_true(stats.gauge[GAUGE_cache_structure_bytes] >= 2 * sizeof *cache);
}

static void test_the_check_looks_into_kept_caches(void **state) {
    (void)state;
    start();
    struct thread_cache *cache = leave_blocks();
    check();
    cache->magazines[size_class_index(BYTES)].depot_low = 9;
    stderr_begin();
    assert_int_equal(check_all(), 1);
    assert_non_null(strstr(stderr_end(), "depot_low <= depot_count: 9, 0"));
    atomic_store_relaxed(&cache->state, CACHE_UNUSED);
    cache->magazines[size_class_index(BYTES)].depot_low = 0;
    stderr_begin();
    assert_int_equal(check_all(), 1);
    assert_non_null(strstr(stderr_end(), "a cache that keeps blocks says so: 0, 3"));
}

static void test_kept_blocks_are_no_leaks(void **state) {
    (void)state;
    start();
    struct thread_cache *cache = leave_blocks();
    stderr_begin();
    const struct leaks leaks = leaks_report(2);
    stderr_end();
    assert_int_equal(leaks.blocks, 0);
    assert_false(is_kept(cache));
}

static void leave_a_double_free(void) {
    for (unsigned i = 0; i < 1000; i++) {
        begin_thread();
        struct thread_cache *cache = thread_cache;
        use(BLOCKS, BYTES);
        void *block = hakmem_alloc(BYTES);
        hakmem_dealloc(block);
        hakmem_dealloc(block);
        be_short();
        end_thread();
        if (is_kept(cache)) {
            return;
        }
        stderr_begin();
    }
    fail_msg("no thread left its blocks");
}

static void test_a_double_free_is_noticed_at_the_exit(void **state) {
    (void)state;
    options.abort = 0;
    start();
    stderr_begin();
    leave_a_double_free();
    const uint64_t misuses = counted(COUNTER_misuses);
    start_finish();
    assert_non_null(strstr(stderr_end(), "double free: 0x"));
    assert_int_equal(counted(COUNTER_misuses), misuses + 1);
}

static void test_a_double_free_is_noticed_by_a_tick(void **state) {
    (void)state;
    options.abort = 0;
    start();
    stderr_begin();
    leave_a_double_free();
    const uint64_t misuses = counted(COUNTER_misuses);
    fake_os_pass_ms(option_live(decay_interval_ms));
    thread_cache->pace_ticks = 0;
    assert_true(maintenance_tick(thread_cache));
    assert_non_null(strstr(stderr_end(), "double free: 0x"));
    assert_int_equal(counted(COUNTER_misuses), misuses + 1);
}

// Whoever is told of a misuse, a handler of SIGABRT among them, may start threads and wait for them.
static unsigned times_told, times_locked;

static enum block_holder look_for_lock(const struct run *slab, uintptr_t start) {
    (void)slab, (void)start;
    times_told++;
    if (lock_try_acquire(&registry_state.lock)) {
        lock_release(&registry_state.lock);
    } else {
        times_locked++;
    }
    return HOLDER_UNKNOWN;
}

// An invalid free waits in a cache that is kept.
static void leave_an_invalid_free(char *block) {
    for (unsigned i = 0; i < 1000; i++) {
        begin_thread();
        struct thread_cache *cache = thread_cache;
        use(BLOCKS, BYTES);
        hakmem_dealloc(block + BLOCK_ALIGN);
        be_short();
        end_thread();
        if (is_kept(cache)) {
            return;
        }
    }
    fail_msg("no thread left its blocks");
}

static void test_threads_may_start_while_a_misuse_is_told(void **state) {
    (void)state;
    options.abort = 0;
    start();
    leave_blocks();
    stderr_begin();
    leave_an_invalid_free(hakmem_alloc(BYTES));
    stderr_end();
    misuse_holder = look_for_lock;
    stderr_begin();
    lifecycle_empty_kept();
    assert_non_null(strstr(stderr_end(), "invalid free: 0x"));
    assert_true(times_told != 0);
    assert_int_equal(times_locked, 0);
}

// ---- fork

static struct thread_cache *left;

// The registry's lock covers what is kept: the child has it as it was, and may go on with it.
static int use_what_was_kept(void) {
    require(check_all() == 0);
    require(is_kept(left));
    const uint64_t held = cached(left);
    require(held != 0 && used_blocks(left) == held);
    // It counts in the child's total.
    options.cache_total_bytes = mine->capacity_bytes + 1;
    require(capacity_is_overdrawn());
    thread_cache = (struct thread_cache *)(uintptr_t)&cache_of_new_thread;
    require(lifecycle_attach() == left);
    options.cache_total_bytes = 32 * MIB;
    void *blocks[ROOM];
    require(held <= ARRAY_COUNT(blocks));
    for (unsigned i = 0; i < held; i++) {
        blocks[i] = hakmem_alloc(BYTES);
        require(blocks[i] != NULL);
        memset(blocks[i], (int)i, BYTES);
    }
    for (unsigned i = 0; i < held; i++) {
        require(*(unsigned char *)blocks[i] == (unsigned char)i);
        hakmem_dealloc(blocks[i]);
    }
    require(check_all() == 0);
    lifecycle_detach();
    thread_cache = mine;
    maintenance_reclaim();
    require(used_blocks(left) == 0);
    require(check_all() == 0);
    return 0;
}

static void *wait_for_the_end(void *barrier) {
    pthread_barrier_wait(barrier);
    return NULL;
}

static void fork_beside(bool another_thread) {
    start();
    use(BLOCKS, BYTES);
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_t thread;
    if (another_thread) {
        assert_int_equal(pthread_create(&thread, NULL, wait_for_the_end, &barrier), 0);
    }
    left = leave_blocks();
    fork_prepare();
    const pid_t child = fork();
    if (child == 0) {
        fork_child();
        _exit(use_what_was_kept());
    }
    fork_parent();
    int status = -1;
    assert_true(waitpid(child, &status, 0) == child);
    assert_int_equal(status, 0);
    assert_true(is_kept(left));
    if (another_thread) {
        pthread_barrier_wait(&barrier);
        pthread_join(thread, NULL);
    }
    check();
}

static void test_a_child_of_fork_has_what_was_kept(void **state) {
    (void)state;
    fork_beside(true);
}

static void test_a_child_of_one_thread_has_what_was_kept(void **state) {
    (void)state;
    fork_beside(false);
}

// An orphan's time is its thread's: it tells nothing of threads that follow one another.
static int take_an_orphan(void) {
    require(atomic_load_relaxed(&left->state) == CACHE_ORPHAN);
    told_soon = told_late = 0;
    thread_cache = (struct thread_cache *)(uintptr_t)&cache_of_new_thread;
    require(lifecycle_attach() == left);
    require(told_soon + told_late == 0);
    require(!left->came_soon);
    require(check_all() == 0);
    return 0;
}

static void *attach_and_wait(void *barrier) {
    left = lifecycle_attach();
    pthread_barrier_wait(barrier);
    pthread_barrier_wait(barrier);
    return NULL;
}

static void test_an_orphan_tells_nothing(void **state) {
    (void)state;
    start();
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, attach_and_wait, &barrier), 0);
    pthread_barrier_wait(&barrier);
    fork_prepare();
    const pid_t child = fork();
    if (child == 0) {
        fork_child();
        _exit(take_an_orphan());
    }
    fork_parent();
    int status = -1;
    assert_true(waitpid(child, &status, 0) == child);
    assert_int_equal(status, 0);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
}

// ---- The learner

static void test_the_learner_sees_threads_follow(void **state) {
    (void)state;
    start();
    learner_start();
    struct thread_cache *cache = NULL;
    for (unsigned i = 0; i < 1000 && (cache == NULL || !is_kept(cache)); i++) {
        cache = live_shortly();
    }
    assert_true(is_kept(cache));
    assert_int_equal(atomic_load_relaxed(&decision_log.decided), 1);
    struct decision *row = &decision_log.decisions[1];
    assert_int_equal(atomic_load_relaxed(&row->knob), POLICY_KNOB_thread_blocks);
    assert_int_equal(atomic_load_relaxed(&row->signal), POLICY_SIGNAL_successors);
    assert_int_equal(atomic_load_relaxed(&row->heap), 0);
    assert_int_equal(atomic_load_relaxed(&row->from), 0);
    assert_int_equal(atomic_load_relaxed(&row->to), 1);
    assert_in_range(atomic_load_relaxed(&row->value), 750, 1000);
    // Switched off, it forgets.
    assert_true(options_set("learn", "0"));
    live_shortly();
    for (unsigned i = 0; i < 8; i++) {
        assert_false(is_kept(live_shortly()));
    }
    assert_true(options_set("learn", "1"));
    for (unsigned i = 0; i < 8; i++) {
        assert_false(is_kept(live_shortly()));
    }
    check();
}

static void test_without_learn_nothing_stays(void **state) {
    (void)state;
    start();
    learner_start();
    options.learn = 0;
    for (unsigned i = 0; i < 200; i++) {
        assert_false(is_kept(live_shortly()));
    }
    assert_int_equal(atomic_load_relaxed(&decision_log.decided), 0);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept_blocks_are_cached_to_the_books),
        cmocka_unit_test(test_the_check_looks_into_kept_caches),
        cmocka_unit_test(test_kept_blocks_are_no_leaks),
        cmocka_unit_test(test_a_double_free_is_noticed_at_the_exit),
        cmocka_unit_test(test_a_double_free_is_noticed_by_a_tick),
        cmocka_unit_test(test_threads_may_start_while_a_misuse_is_told),
        cmocka_unit_test(test_a_child_of_fork_has_what_was_kept),
        cmocka_unit_test(test_a_child_of_one_thread_has_what_was_kept),
        cmocka_unit_test(test_an_orphan_tells_nothing),
        cmocka_unit_test(test_the_learner_sees_threads_follow),
        cmocka_unit_test(test_without_learn_nothing_stays),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
