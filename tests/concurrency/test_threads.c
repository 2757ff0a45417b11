// Threads that come and go, idle, fork, or look at each other's numbers.
#include <semaphore.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bits.h"
#include "concurrency.h"
#include "heap/quarantine.h"
#include "thread/fork.h"

// ---- Churn: heaps pass from thread to thread

static void *live_shortly(void *argument) {
    uint64_t random = random_start((unsigned)(uintptr_t)argument);
    struct block *blocks[50];
    for (unsigned i = 0; i < 50; i++) {
        blocks[i] = block_new(32 + random_below(&random, 4000));
    }
    for (unsigned i = 0; i < 50; i++) {
        block_delete(blocks[i]);
    }
    return NULL;
}

static void start_short_threads(struct worker *worker) {
    for (unsigned i = 0; i < OPERATIONS(2000); i++) {
        pthread_t thread;
        void *seed = (void *)(uintptr_t)(worker->index * 10000 + i);
        REQUIRE(pthread_create(&thread, NULL, live_shortly, seed) == 0);
        REQUIRE(pthread_join(thread, NULL) == 0);
    }
}

static void test_churn(void **state) {
    (void)state;
    const uint64_t before = gauge_now(GAUGE_heaps);
    const uint64_t before_in_use = gauge_now(GAUGE_heaps_in_use);
    run_workers(4, start_short_threads);
    // A thread that ends has given its heap back when pthread_join() returns.
    assert_true(gauge_now(GAUGE_heaps) <= greatest_u64(before, 1 + 8));
    assert_int_equal(gauge_now(GAUGE_heaps_in_use), before_in_use);
}

// ---- The same where threads leave their cached blocks to the next, while others give home what nobody took yet

static bool says_keep(bool was_soon) {
    (void)was_soon;
    return true;
}

static void *leave_blocks(void *argument) {
    live_shortly(argument);
    // However slow the machine and the sanitizer are.
    thread_cache->came_soon = true;
    thread_cache->passed_ticks = os_ticks();
    return NULL;
}

static _Atomic(unsigned) chains_left, times_kept;

static void start_successors(struct worker *worker) {
    for (unsigned i = 0; i < OPERATIONS(2000); i++) {
        pthread_t threads[2];
        for (unsigned at = 0; at < 2; at++) {
            void *seed = (void *)(uintptr_t)(worker->index * 10000 + 2 * i + at);
            REQUIRE(pthread_create(&threads[at], NULL, leave_blocks, seed) == 0);
        }
        for (unsigned at = 0; at < 2; at++) {
            REQUIRE(pthread_join(threads[at], NULL) == 0);
        }
        atomic_fetch_add(&times_kept, atomic_load_relaxed(&registry_state.kept_count));
    }
    atomic_fetch_sub(&chains_left, 1);
}

static void require_whole_in_child(void) {
    fork_prepare();
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        fork_child();
        REQUIRE(check_all() == 0);
        live_shortly(NULL);
        maintenance_reclaim();
        REQUIRE(check_all() == 0);
        REQUIRE(counter_now(COUNTER_misuses) == 0);
        _exit(0);
    }
    fork_parent();
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void disturb(struct worker *worker) {
    unsigned forks = 0;
    while (atomic_load(&chains_left) != 0) {
        block_delete(block_new(64));
        switch (random_below(&worker->random, 8)) {
        case 0:
            lifecycle_empty_kept();
            break;
        case 1:
            REQUIRE(check_all() == 0);
            break;
        case 2:
            maintenance_reclaim();
            break;
        case 3:
            REQUIRE(gauge_now(GAUGE_heaps_in_use) >= 1);
            break;
        case 4:
            if (forks++ < OPERATIONS(100)) {
                require_whole_in_child();
            }
            break;
        default:
            lifecycle_empty_overdue(os_clock_ms());
        }
    }
}

static void work_or_disturb(struct worker *worker) {
    if (worker->index < 3) {
        start_successors(worker);
    } else {
        disturb(worker);
    }
}

static void test_successors(void **state) {
    (void)state;
    atomic_store_relaxed(&knobs_hooks.succession, says_keep);
    assert_true(options_set("decay_interval_ms", "1"));
    atomic_store(&chains_left, 3);
    run_workers(5, work_or_disturb);
    // hardened has no magazines.
    assert_int_equal(atomic_load(&times_kept) != 0, !heap_checks_frees());
    atomic_store_relaxed(&knobs_hooks.succession, NULL);
    assert_true(options_set("decay_interval_ms", "100"));
}

// ---- After the end: blocks of threads without a cache

static struct block *_Atomic late_slots[64];
static pthread_key_t late_key;

static void use_late_heap(void *argument) {
    struct worker *worker = argument;
    for (unsigned i = 0; i < OPERATIONS(20000); i++) {
        const unsigned slot = random_below(&worker->random, 64);
        struct block *block = block_new(32 + random_bytes(&worker->random));
        struct block *old =
            atomic_exchange_explicit(&late_slots[slot], block, memory_order_acq_rel);
        if (old != NULL) {
            block_delete(old);
        }
    }
}

// Some workers end first and then use the allocator, others use it with a cache, on shared slots.
static void work_before_or_after_the_end(struct worker *worker) {
    if (worker->index % 2 == 0) {
        block_delete(block_new(100));
        lifecycle_detach();
        REQUIRE(!cache_is_real(thread_cache));
    }
    use_late_heap(worker);
}

static void empty_late_slots(void) {
    for (unsigned i = 0; i < 64; i++) {
        struct block *old = atomic_exchange_explicit(&late_slots[i], NULL, memory_order_acq_rel);
        if (old != NULL) {
            block_delete(old);
        }
    }
}

static void test_late_heap(void **state) {
    (void)state;
    const uint64_t before = counter_now(COUNTER_late_operations);
    run_workers(4, work_before_or_after_the_end);
    empty_late_slots();
    assert_true(counter_now(COUNTER_late_operations) > before);
}

// Destructors of keys run in any order and several rounds; the last rounds find no cache. In the
// fourth and last one ThreadSanitizer itself has left the thread, and nothing may run.
#ifdef __SANITIZE_THREAD__
#define LAST_ROUND_BYTES 700
#else
#define LAST_ROUND_BYTES 1000
#endif

static void allocate_in_destructor(void *value) {
    struct block *block = value;
    const size_t bytes = block->bytes;
    block_delete(block);
    if (bytes < LAST_ROUND_BYTES) {
        REQUIRE(pthread_setspecific(late_key, block_new(bytes + 300)) == 0);
    }
}

static void leave_a_block(struct worker *worker) {
    (void)worker;
    REQUIRE(pthread_setspecific(late_key, block_new(100)) == 0);
}

static void test_key_destructors(void **state) {
    (void)state;
    assert_int_equal(pthread_key_create(&late_key, allocate_in_destructor), 0);
    for (unsigned i = 0; i < OPERATIONS(200); i++) {
        run_workers(4, leave_a_block);
    }
    assert_int_equal(pthread_key_delete(late_key), 0);
}

// ---- Harvest: a thread sleeps while others free its blocks

#define IDLE_BLOCKS 20000
static struct block *idle_blocks[IDLE_BLOCKS];
static sem_t idle_ready, idle_wake;

static void *allocate_and_sleep(void *argument) {
    (void)argument;
    for (unsigned i = 0; i < IDLE_BLOCKS; i++) {
        idle_blocks[i] = block_new(200);
    }
    sem_post(&idle_ready);
    sem_wait(&idle_wake);
    // What the harvest left behind still serves.
    for (unsigned i = 0; i < 1000; i++) {
        block_delete(block_new(200));
    }
    return NULL;
}

static void tick_now(void) {
    thread_cache->pace_ticks = 0;
    maintenance_tick(thread_cache);
}

static void test_harvest(void **state) {
    (void)state;
    pthread_t owner;
    assert_true(options_set("decay_interval_ms", "1"));
    assert_true(options_set("slab_purge_delay_ms", "1"));
    sem_init(&idle_ready, 0, 0);
    sem_init(&idle_wake, 0, 0);
    assert_int_equal(pthread_create(&owner, NULL, allocate_and_sleep, NULL), 0);
    sem_wait(&idle_ready);
    const uint64_t full = gauge_now(GAUGE_slab_bytes);
    for (unsigned i = 0; i < IDLE_BLOCKS; i++) {
        block_delete(idle_blocks[i]);
    }
    uint64_t left = full;
    for (unsigned i = 0; i < 1000 && left > full / 10; i++) {
        tick_now();
        usleep(2000);
        left = gauge_now(GAUGE_slab_bytes);
    }
    print_message("slabs of a thread that sleeps: %llu KiB, then %llu KiB\n",
                  (unsigned long long)full / 1024, (unsigned long long)left / 1024);
    assert_true(left <= full / 10);
    sem_post(&idle_wake);
    assert_int_equal(pthread_join(owner, NULL), 0);
    assert_true(options_set("decay_interval_ms", "100"));
    assert_true(options_set("slab_purge_delay_ms", "2000"));
}

// ---- Everything at once: owners at work, harvesters that reclaim, readers that count and check

static _Atomic(struct block *) busy_slots[512];
static _Atomic(unsigned) busy_left;

static void use_memory(struct worker *worker) {
    for (unsigned i = 0; i < OPERATIONS(100000); i++) {
        const unsigned slot = random_below(&worker->random, ARRAY_COUNT(busy_slots));
        struct block *block = block_new(32 + random_bytes(&worker->random));
        struct block *old =
            atomic_exchange_explicit(&busy_slots[slot], block, memory_order_acq_rel);
        if (old != NULL) {
            REQUIRE(hakmem_block_bytes(old) >= old->bytes);
            block_delete(old);
        }
    }
    atomic_fetch_sub(&busy_left, 1);
}

static void look_and_check(void) {
    struct stats stats;
    uint64_t remote_before = 0;
    while (atomic_load(&busy_left) != 0) {
        stats_collect(&stats);
        REQUIRE(stats.counter[COUNTER_remote_collected] >= remote_before);
        remote_before = stats.counter[COUNTER_remote_collected];
        for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
            const struct stats_class *class = &stats.class[i];
            REQUIRE((class->live_blocks + class->cached_blocks + class->free_blocks) *
                        class->block_bytes <=
                    class->slab_bytes);
        }
        REQUIRE(check_all() == 0);
        REQUIRE(hakmem_block_bytes(NULL) == 0);
    }
}

static void reclaim_or_tick(struct worker *worker) {
    while (atomic_load(&busy_left) != 0) {
        block_delete(block_new(64));
        if (random_below(&worker->random, 4) == 0) {
            maintenance_reclaim();
        } else {
            tick_now();
        }
    }
}

static void work_look_or_reclaim(struct worker *worker) {
    if (worker->index < 3) {
        use_memory(worker);
    } else if (worker->index == 3) {
        look_and_check();
    } else {
        reclaim_or_tick(worker);
    }
}

static void test_readers_and_harvesters_at_work(void **state) {
    (void)state;
    atomic_store(&busy_left, 3);
    assert_true(options_set("decay_interval_ms", "1"));
    assert_true(options_set("slab_purge_delay_ms", "0"));
    run_workers(5, work_look_or_reclaim);
    assert_true(options_set("decay_interval_ms", "100"));
    assert_true(options_set("slab_purge_delay_ms", "2000"));
    for (unsigned i = 0; i < ARRAY_COUNT(busy_slots); i++) {
        struct block *old = atomic_exchange(&busy_slots[i], NULL);
        if (old != NULL) {
            block_delete(old);
        }
    }
}

// ---- Fork while others work: the child's heap is whole, and works

static void child_uses_memory(void) {
    // The blocks that other threads held or cached stay in use; the rest serves.
    REQUIRE(check_all() == 0);
    uint64_t random = random_start(77);
    struct block *blocks[500];
    for (unsigned round = 0; round < 5; round++) {
        for (unsigned i = 0; i < ARRAY_COUNT(blocks); i++) {
            blocks[i] = block_new(32 + random_bytes(&random));
        }
        for (unsigned i = 0; i < ARRAY_COUNT(blocks); i++) {
            block_delete(blocks[i]);
        }
    }
    // Blocks of threads that are gone can be freed, too.
    for (unsigned i = 0; i < ARRAY_COUNT(busy_slots); i++) {
        struct block *old = atomic_exchange(&busy_slots[i], NULL);
        if (old != NULL) {
            block_delete(old);
        }
    }
    maintenance_reclaim();
    REQUIRE(check_all() == 0);
    REQUIRE(counter_now(COUNTER_misuses) == 0);
    _exit(0);
}

static void fork_children(void) {
    for (unsigned i = 0; i < 20 && atomic_load(&busy_left) != 0; i++) {
        fork_prepare();
        const pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            fork_child();
            child_uses_memory();
        }
        fork_parent();
        int status = 0;
        REQUIRE(waitpid(child, &status, 0) == child);
        REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        block_delete(block_new(500));
    }
}

static void work_or_fork(struct worker *worker) {
    if (worker->index == 0) {
        fork_children();
    } else {
        use_memory(worker);
    }
}

static void test_fork(void **state) {
    (void)state;
    atomic_store(&busy_left, 3);
    run_workers(4, work_or_fork);
    for (unsigned i = 0; i < ARRAY_COUNT(busy_slots); i++) {
        struct block *old = atomic_exchange(&busy_slots[i], NULL);
        if (old != NULL) {
            block_delete(old);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_churn, finish_test),
        cmocka_unit_test_teardown(test_successors, finish_test),
        cmocka_unit_test_teardown(test_late_heap, finish_test),
        cmocka_unit_test_teardown(test_key_destructors, finish_test),
        cmocka_unit_test_teardown(test_harvest, finish_test),
        cmocka_unit_test_teardown(test_readers_and_harvesters_at_work, finish_test),
        cmocka_unit_test_teardown(test_fork, finish_test),
    };
    print_message("seed %llu\n", (unsigned long long)base_seed());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
