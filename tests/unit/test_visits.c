// Visits: what the ticks of one thread do for the heaps of others that sleep.
#include "isolate.h"

#include <pthread.h>
#include <string.h>

#include "api/alloc.h"
#include "base/bits.h"
#include "config/options.h"
#include "control/learner.h"
#include "counted.h"
#include "fake_os.h"
#include "heap/heap_purge.h"
#include "heap/slab.h"
#include "idle.h"
#include "thread/lifecycle.h"
#include "thread/maintenance.h"
#include "thread/migration.h"

static void test_idle_heap_is_cleaned_up(void **state) {
    (void)state;
    start();
    options.decay_interval_ms = 100;
    options.slab_purge_delay_ms = 1000;
    struct idle idle;
    begin_idle(&idle);
    const uint64_t purged = counted(COUNTER_slab_purged_bytes);
    tick_after(1);  // sees that it moved
    tick_after(999);
    assert_int_equal(counted(COUNTER_slab_purged_bytes), purged);
    tick_after(1);  // idle long enough
    assert_int_equal(counted(COUNTER_harvests), 1);
    assert_true(counted(COUNTER_slab_purged_bytes) > purged + 500 * KIB);
    for (unsigned i = 0; i < 10; i++) {
        assert_int_equal(*(char *)idle.kept[i], 1);
    }
    // Once is enough.
    tick_after(5000);
    tick_after(5000);
    assert_int_equal(counted(COUNTER_harvests), 1);
    end_idle(&idle);
}

static void test_the_learner_cleans_up_an_idle_heap_sooner(void **state) {
    (void)state;
    learner_start();
    start();
    options.decay_interval_ms = 100000;
    options.slab_purge_delay_ms = 6400;
    struct idle idle;
    begin_idle(&idle);
    const uint64_t purged = counted(COUNTER_slab_purged_bytes);
    tick_after(1);  // sees that it moved
    tick_after(99);
    assert_int_equal(counted(COUNTER_slab_purged_bytes), purged);
    tick_after(1);
    assert_true(counted(COUNTER_slab_purged_bytes) > purged + 500 * KIB);
    assert_int_equal(counted(COUNTER_harvests), 1);
    assert_true(idle.cache->heap.purge_delay.early_bytes > 500 * KIB);
    // Nothing waits for the option's delay.
    tick_after(5000);
    assert_int_equal(counted(COUNTER_harvests), 1);
    end_idle(&idle);
}

static void test_remote_frees_to_an_idle_heap_are_collected(void **state) {
    (void)state;
    start();
    options.decay_interval_ms = 100;
    options.slab_purge_delay_ms = 100000;
    struct idle idle;
    begin_idle(&idle);
    const uint64_t before = slab_bytes(idle.cache);
    tick_after(1);
    for (unsigned i = 0; i < 10; i++) {
        hakmem_dealloc(idle.kept[i]);
    }
    cache_empty(thread_cache);
    assert_true(heap_has_remote(&idle.cache->heap));
    tick_after(MIGRATION_IDLE_MS);
    assert_true(heap_has_remote(&idle.cache->heap));
    tick_after(100 - MIGRATION_IDLE_MS);
    assert_false(heap_has_remote(&idle.cache->heap));
    assert_int_equal(counted(COUNTER_remote_collected), 10);
    assert_true(slab_bytes(idle.cache) < before);
    end_idle(&idle);
}

// Where a thread that needed slabs has collected, what emptied waits for less long.
static void test_what_emptied_in_a_heap_asleep_is_released_sooner(void **state) {
    (void)state;
    start();
    options.decay_interval_ms = 100000;
    options.slab_purge_delay_ms = 100000;
    options.retain_slabs = 0;
    struct idle idle;
    begin_idle(&idle);
    tick_after(1);
    idle.cache->heap.wants_visit = true;
    tick_after(MIGRATION_IDLE_MS - 1);
    assert_int_equal(counted(COUNTER_harvests), 0);
    tick_after(1);
    assert_int_equal(counted(COUNTER_harvests), 1);
    assert_false(idle.cache->heap.wants_visit);
    // No later than all the others.
    options.decay_interval_ms = 1;
    atomic_bump_owned(&idle.cache->activity, 1);
    idle.cache->heap.wants_visit = true;
    tick_after(1);  // active until now
    assert_int_equal(counted(COUNTER_harvests), 1);
    tick_after(1);
    assert_int_equal(counted(COUNTER_harvests), 2);
    end_idle(&idle);
}

// As in the child of a fork whose namespace has a time of its own.
static void test_idle_heap_is_cleaned_up_where_the_clock_goes_back(void **state) {
    (void)state;
    start();
    options.slab_purge_delay_ms = 1000;
    fake_os_pass_ms(1000000);
    struct idle idle;
    begin_idle(&idle);
    tick_after(1);
    assert_int_equal(counted(COUNTER_harvests), 0);
    tick_after(-UINT64_C(900000));
    assert_int_equal(counted(COUNTER_harvests), 0);
    tick_after(1000);
    assert_int_equal(counted(COUNTER_harvests), 1);
    end_idle(&idle);
}

static void test_busy_heap_is_left_alone(void **state) {
    (void)state;
    start();
    options.slab_purge_delay_ms = 1000;
    struct idle idle;
    begin_idle(&idle);
    for (unsigned i = 0; i < 10; i++) {
        atomic_bump_owned(&idle.cache->activity, 1u);
        tick_after(900);
    }
    assert_int_equal(counted(COUNTER_harvests), 0);
    // It moved after this visitor looked at the clock, as another one has noted.
    idle.cache->activity_ms = os_clock_ms() + 1;
    tick_after(0);
    assert_int_equal(counted(COUNTER_harvests), 0);
    // A lock that another thread holds is no reason to wait.
    atomic_store_relaxed(&idle.cache->heap.lock.state, 1);
    fake_os_pass_ms(5000);
    thread_cache->pace_ticks = 0;
    assert_true(maintenance_tick(thread_cache));
    assert_int_equal(counted(COUNTER_harvests), 0);
    atomic_store_relaxed(&idle.cache->heap.lock.state, 0);
    end_idle(&idle);
}

static void test_many_idle_heaps_are_cleaned_up_in_turn(void **state) {
    (void)state;
    start();
    options.slab_purge_delay_ms = 1000;
    enum { COUNT = 20 };
    static struct idle idles[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        begin_idle(&idles[i]);
    }
    tick_after(1);
    fake_os_pass_ms(1000);
    // Not all of them in one tick.
    uint64_t before = counted(COUNTER_harvests);
    for (unsigned ticks = 0; ticks < 4; ticks++) {
        tick_after(0);
        const uint64_t harvests = counted(COUNTER_harvests);
        assert_true(harvests - before <= 8);
        before = harvests;
    }
    assert_int_equal(counted(COUNTER_harvests), COUNT);
    for (unsigned i = 0; i < COUNT; i++) {
        end_idle(&idles[i]);
    }
}

enum { MANY = 10000, MANY_BYTES = 4096 };

static void *many[MANY];

static void *allocate_much_and_idle(void *argument) {
    struct idle *idle = argument;
    for (unsigned i = 0; i < MANY; i++) {
        many[i] = hakmem_alloc(MANY_BYTES);
        memset(many[i], 1, MANY_BYTES);
    }
    // One block stays of each slab, so that none is empty.
    const struct size_class *size_class = &size_classes[size_class_index(MANY_BYTES)];
    for (unsigned i = 0; i < MANY; i++) {
        if (i % size_class->block_count != 0) {
            hakmem_dealloc(many[i]);
        }
    }
    cache_empty(thread_cache);
    idle->cache = thread_cache;
    pthread_barrier_wait(&idle->barrier);
    pthread_barrier_wait(&idle->barrier);
    return NULL;
}

// The heap's thread may want its lock any moment: a visit is short, and the next one goes on.
static void test_a_visit_is_bounded(void **state) {
    (void)state;
    start();
    options.slab_purge_delay_ms = 1000;
    options.excess_bytes = 64 * MIB;
    options.random_refill = 0;
    struct idle idle;
    pthread_barrier_init(&idle.barrier, NULL, 2);
    assert_int_equal(pthread_create(&idle.thread, NULL, allocate_much_and_idle, &idle), 0);
    pthread_barrier_wait(&idle.barrier);
    assert_int_equal(counted(COUNTER_slab_purged_bytes), 0);
    tick_after(1);
    fake_os_pass_ms(1000);
    unsigned visits = 0;
    for (uint64_t before = 0, purged = 1; purged != before; visits++) {
        before = counted(COUNTER_slab_purged_bytes);
        tick_after(1);
        purged = counted(COUNTER_slab_purged_bytes);
        assert_true(purged - before <= 8 * MIB + MIB);
        assert_true(idle.cache->heap.budget_bytes == HEAP_BUDGET_ALL);
    }
    assert_in_range(visits, 5, 8);
    assert_true(counted(COUNTER_slab_purged_bytes) > 35 * MIB);
    assert_int_equal(idle.cache->heap.loose_bytes, 0);
    end_idle(&idle);
}

// What came back to an idle heap from others is too much, and more than a visit gives back.
static void test_excess_of_an_idle_heap_goes_in_several_visits(void **state) {
    (void)state;
    start();
    options.decay_interval_ms = 100;
    options.slab_purge_delay_ms = 100000;
    options.excess_bytes = 64 * MIB;
    struct idle idle;
    pthread_barrier_init(&idle.barrier, NULL, 2);
    assert_int_equal(pthread_create(&idle.thread, NULL, allocate_much_and_idle, &idle), 0);
    pthread_barrier_wait(&idle.barrier);
    tick_after(1);
    options.excess_bytes = 4 * MIB;
    hakmem_dealloc(many[32]);
    cache_empty(thread_cache);
    fake_os_pass_ms(100);
    uint64_t before = idle.cache->heap.loose_bytes;
    assert_true(before > 35 * MIB);
    for (unsigned visits = 0; visits < 12; visits++) {
        tick_after(1);
        const uint64_t loose_bytes = idle.cache->heap.loose_bytes;
        // The tick's own, and one more in each slow path while that is too much to wait for ticks.
        assert_true(before - loose_bytes <= 2 * 8 * MIB + MIB);
        before = loose_bytes;
    }
    assert_true(before <= 4 * MIB);
    assert_null(thread_cache->heap.overfull);
    end_idle(&idle);
}

static void *allocate_all_and_idle(void *argument) {
    struct idle *idle = argument;
    for (unsigned i = 0; i < MANY; i++) {
        many[i] = hakmem_alloc(MANY_BYTES);
    }
    idle->cache = thread_cache;
    pthread_barrier_wait(&idle->barrier);
    pthread_barrier_wait(&idle->barrier);
    return NULL;
}

// Too much for the heap's thread to be waited for: the slow paths that follow give it back, without a tick.
static void test_what_waits_at_another_heap_is_bounded(void **state) {
    (void)state;
    start();
    options.excess_bytes = 4 * MIB;
    options.slab_purge_delay_ms = options.purge_delay_ms = 100000;
    struct idle idle;
    pthread_barrier_init(&idle.barrier, NULL, 2);
    assert_int_equal(pthread_create(&idle.thread, NULL, allocate_all_and_idle, &idle), 0);
    pthread_barrier_wait(&idle.barrier);
    tick_after(1);
    const struct heap *heap = &idle.cache->heap;
    const uint64_t used_bytes = heap->used_bytes;
    assert_true(used_bytes > 35 * MIB);
    uint64_t waiting_most = 0;
    for (unsigned i = 0; i < ARRAY_COUNT(many); i++) {
        hakmem_dealloc(many[i]);
        waiting_most = greatest_u64(
            waiting_most, atomic_load_relaxed(&((struct heap *)(uintptr_t)heap)->waiting_bytes));
    }
    assert_true(waiting_most <= EXCESS_HEAPS * 4 * MIB + MIB);
    assert_true(heap->used_bytes <= EXCESS_HEAPS * 4 * MIB + MIB);
    assert_true(heap->loose_bytes <= 4 * MIB);
    end_idle(&idle);
}

// Its memory was locked while it was visited; nobody has freed any of it since.
static void test_what_the_system_refused_of_an_idle_heap_is_tried_again(void **state) {
    (void)state;
    start();
    options.slab_purge_delay_ms = options.purge_delay_ms = 1000;
    struct idle idle;
    begin_idle(&idle);
    fake_os_fail(OS_MADVISE, 1, true);
    for (unsigned i = 0; i < 3; i++) {
        tick_after(1000);
    }
    const uint64_t purged = counted(COUNTER_slab_purged_bytes);
    const uint64_t harvests = counted(COUNTER_harvests);
    for (unsigned i = 0; i < 3; i++) {
        tick_after(1000);
    }
    assert_int_equal(counted(COUNTER_harvests), harvests);
    fake_os_mend();
    // Until the system takes something of whatever.
    for (unsigned i = 0; i < 20; i++) {
        char *large = hakmem_alloc(MIB);
        memset(large, 1, MIB);
        hakmem_dealloc(large);
        tick_after(1000);
    }
    assert_true(counted(COUNTER_slab_purged_bytes) > purged + 500 * KIB);
    for (unsigned i = 0; i < 10; i++) {
        assert_int_equal(*(char *)idle.kept[i], 1);
    }
    const uint64_t visits = counted(COUNTER_harvests);
    tick_after(1000);
    tick_after(1000);
    assert_int_equal(counted(COUNTER_harvests), visits);
    end_idle(&idle);
}

// One page of a buffer that the program has locked and freed: not at each tick, for ever.
static void test_what_stays_locked_is_put_off(void **state) {
    (void)state;
    start();
    options.slab_purge_delay_ms = 1000;
    struct idle idle;
    begin_idle(&idle);
    const uintptr_t page = align_up((uintptr_t)idle.kept[1] + 8 * KIB, 4096);
    fake_os_lock((void *)page, 4096);
    for (unsigned i = 0; i < 3; i++) {
        tick_after(1000);
    }
    assert_true(counted(COUNTER_slab_purged_bytes) > 500 * KIB);
    assert_true(idle.cache->heap.refused_wait != 0);
    const uint64_t calls = fake_os_calls(OS_MADVISE);
    const uint64_t harvests = counted(COUNTER_harvests);
    for (unsigned i = 0; i < 400; i++) {
        tick_after(100);
    }
    const uint64_t tries = counted(COUNTER_harvests) - harvests;
    assert_in_range(tries, 1, 6);
    assert_true(fake_os_calls(OS_MADVISE) - calls <= tries * 64);
    fake_os_lock((void *)page, 0);
    for (unsigned i = 0; i < 700; i++) {
        tick_after(1000);
    }
    assert_int_equal(idle.cache->heap.refused_wait, 0);
    end_idle(&idle);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_idle_heap_is_cleaned_up),
        cmocka_unit_test(test_the_learner_cleans_up_an_idle_heap_sooner),
        cmocka_unit_test(test_remote_frees_to_an_idle_heap_are_collected),
        cmocka_unit_test(test_what_emptied_in_a_heap_asleep_is_released_sooner),
        cmocka_unit_test(test_idle_heap_is_cleaned_up_where_the_clock_goes_back),
        cmocka_unit_test(test_busy_heap_is_left_alone),
        cmocka_unit_test(test_many_idle_heaps_are_cleaned_up_in_turn),
        cmocka_unit_test(test_a_visit_is_bounded),
        cmocka_unit_test(test_excess_of_an_idle_heap_goes_in_several_visits),
        cmocka_unit_test(test_what_waits_at_another_heap_is_bounded),
        cmocka_unit_test(test_what_the_system_refused_of_an_idle_heap_is_tried_again),
        cmocka_unit_test(test_what_stays_locked_is_put_off),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
