// What other threads, or one without a cache, freed of a heap's blocks: how much waits there, and how much of it goes at once.
#include "isolate.h"

#include <pthread.h>
#include <sched.h>

#include "api/alloc.h"
#include "base/bits.h"
#include "config/options.h"
#include "control/check.h"
#include "counted.h"
#include "fake_os.h"
#include "heap/heap_purge.h"
#include "thread/lifecycle.h"
#include "thread/maintenance.h"
#include "thread/relief.h"

enum { MANY = 10000, MANY_BYTES = 4096 };

static void *many[MANY];

static void start(void) {
    assert_non_null(lifecycle_attach());
    options.watched_operations = 0;
}

static void *allocate_all_and_free_late(void *waiting_most) {
    for (unsigned i = 0; i < MANY; i++) {
        many[i] = hakmem_alloc(MANY_BYTES);
    }
    struct heap *heap = &thread_cache->heap;
    lifecycle_detach();
    for (unsigned i = 0; i < MANY; i++) {
        hakmem_dealloc(many[i]);
        *(uint64_t *)waiting_most =
            greatest_u64(*(uint64_t *)waiting_most, atomic_load_relaxed(&heap->waiting_bytes));
    }
    return NULL;
}

// Where a thread frees that has no cache any more, in one of its last destructors.
static void test_what_is_freed_late_is_bounded(void **state) {
    (void)state;
    start();
    options.excess_bytes = 4 * MIB;
    uint64_t waiting_most = 0;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, allocate_all_and_free_late, &waiting_most), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_in_range(waiting_most, EXCESS_HEAPS * 4 * MIB, EXCESS_HEAPS * 4 * MIB + MIB);
    assert_int_equal(check_all(), 0);
}

static void *free_all(void *unused) {
    for (unsigned i = 0; i < MANY; i++) {
        hakmem_dealloc(many[i]);
    }
    return unused;
}

// What other threads freed of a heap's blocks comes home with its thread's next refill, and its slabs leave in parts.
static void test_a_refill_gives_back_a_part_of_what_came_home(void **state) {
    (void)state;
    start();
    for (unsigned i = 0; i < MANY; i++) {
        many[i] = hakmem_alloc(MANY_BYTES);
    }
    cache_empty(thread_cache);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, free_all, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    enum { PART_SLABS = HEAP_BUDGET_CALL / PAGE_BYTES };
    uint64_t before = counted(COUNTER_slabs_released);
    assert_non_null(hakmem_alloc(MANY_BYTES));
    uint64_t released = counted(COUNTER_slabs_released) - before;
    assert_in_range(released, 1, 2 * PART_SLABS);  // the slow path's own, and what it relieves
    assert_ptr_equal(thread_cache->heap.overfull, &thread_cache->heap);
    const uint64_t all = MANY * MANY_BYTES / PAGE_BYTES;
    for (unsigned parts = 0; thread_cache->heap.overfull != NULL; parts++) {
        assert_in_range(parts, 0, 2 * all / PART_SLABS);
        before = counted(COUNTER_slabs_released);
        maintenance_tick(thread_cache);
        released = counted(COUNTER_slabs_released) - before;
        assert_in_range(released, 0, 3 * PART_SLABS);
    }
    assert_true(counted(COUNTER_slabs_released) > all - 2 * MIB / PAGE_BYTES);
    assert_int_equal(check_all(), 0);
}

static pthread_barrier_t barrier;

static void *allocate_all_and_sleep(void *unused) {
    for (unsigned i = 0; i < MANY; i++) {
        many[i] = hakmem_alloc(MANY_BYTES);
    }
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return unused;
}

// Of each slab of a heap asleep one block stays, so that none is empty, and more must be looked at than one visit does: the visits end,
// and leave no more than may stay.
static void test_visits_of_a_heap_with_sparse_slabs_end(void **state) {
    (void)state;
    start();
    options.excess_bytes = 4 * MIB;
    options.decay_interval_ms = 100;
    options.slab_purge_delay_ms = 1000;
    pthread_t thread;
    pthread_barrier_init(&barrier, NULL, 2);
    assert_int_equal(pthread_create(&thread, NULL, allocate_all_and_sleep, NULL), 0);
    pthread_barrier_wait(&barrier);
    const unsigned per_slab = size_classes[size_class_index(MANY_BYTES)].block_count;
    for (unsigned i = 0; i < MANY; i++) {
        if (i % per_slab != 0) {
            hakmem_dealloc(many[i]);
        }
    }
    cache_empty(thread_cache);
    struct heap *heap = &lifecycle_caches()->heap;
    heap = heap == &thread_cache->heap ? &lifecycle_caches()->next_all->heap : heap;
    unsigned ticks = 0;
    do {
        fake_os_pass_ms(1200);
        thread_cache->pace_ticks = os_ticks() - OS_TICKS_PACE;
        assert_true(maintenance_tick(thread_cache));
        assert_in_range(++ticks, 0, 1000);
    } while (os_ticks() - thread_cache->pace_ticks >= OS_TICKS_PACE / 2 ||
             heap->loose_bytes > 4 * MIB);
    assert_false(heap_has_more(heap));
    assert_int_equal(check_all(), 0);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
}

// The blocks of one thread of those that follow one another, as many as its cache holds.
enum { ENDING_THREADS = 10, ENDING_BLOCKS = MANY / ENDING_THREADS };

static void *free_and_end(void *first) {
    for (unsigned i = 0; i < ENDING_BLOCKS; i++) {
        hakmem_dealloc(((void **)first)[i]);
    }
    lifecycle_detach();
    return NULL;
}

// Threads that free by hits alone and end: what they had in their caches comes to a heap asleep when no slow path follows.
static void test_what_ending_threads_send_is_bounded(void **state) {
    (void)state;
    enum { EXCESS = 512 * KIB, CACHE = 2 * ENDING_BLOCKS * MANY_BYTES };
    options.excess_bytes = EXCESS;
    options.cache_start_bytes = options.cache_class_bytes = options.cache_heap_bytes = CACHE;
    options.decay_interval_ms = 3600000;
    start();
    for (unsigned i = 0; i < MANY; i++) {
        many[i] = hakmem_alloc(MANY_BYTES);
    }
    cache_empty(thread_cache);
    for (unsigned i = 0; i < ENDING_THREADS; i++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, free_and_end, many + i * ENDING_BLOCKS), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    const struct heap *heap = &thread_cache->heap;
    const uint64_t kept_bytes =
        heap->loose_bytes + atomic_load_relaxed(&((struct heap *)(uintptr_t)heap)->waiting_bytes);
    assert_in_range(kept_bytes, 0, EXCESS_HEAPS * EXCESS + ENDING_BLOCKS * MANY_BYTES);
    assert_int_equal(check_all(), 0);
}

enum { AT_ONCE_BLOCKS = 3000 };

static _Atomic(bool) has_ended;

static void *free_by_hits_and_end(void *unused) {
    for (unsigned i = 0; i < AT_ONCE_BLOCKS; i++) {
        hakmem_dealloc(many[i]);
    }
    lifecycle_detach();
    atomic_store_relaxed(&has_ended, true);
    return unused;
}

// Of threads that end at once one has the heap's lock: the others wait for it, for nobody else comes by.
static void test_who_ends_waits_for_the_heap(void **state) {
    (void)state;
    enum { EXCESS = 512 * KIB, CACHE = 15 * MIB };
    options.excess_bytes = EXCESS;
    options.cache_start_bytes = options.cache_class_bytes = options.cache_heap_bytes = CACHE;
    options.cache_total_bytes = 8 * CACHE;
    options.decay_interval_ms = 3600000;
    start();
    for (unsigned i = 0; i < AT_ONCE_BLOCKS; i++) {
        many[i] = hakmem_alloc(MANY_BYTES);
    }
    cache_empty(thread_cache);
    struct heap *heap = &thread_cache->heap;
    pthread_t thread;
    lock_acquire(&heap->lock);
    assert_int_equal(pthread_create(&thread, NULL, free_by_hits_and_end, NULL), 0);
    while (!atomic_load_relaxed(&has_ended) && atomic_load_relaxed(&heap->lock.state) != 2) {
        sched_yield();
    }
    lock_release(&heap->lock);
    assert_int_equal(pthread_join(thread, NULL), 0);
    const uint64_t kept_bytes = heap->loose_bytes + atomic_load_relaxed(&heap->waiting_bytes);
    assert_in_range(kept_bytes, 0, EXCESS_HEAPS * EXCESS + 4 * MIB);
    assert_int_equal(check_all(), 0);
}

static struct heap *publish(void *block) {
    return heap_publish_block(arena_find((uintptr_t)block), block);
}

// Whoever collected had no budget for all of it, and may not come again: who sends more is told, as if it still waited.
static void test_what_a_collect_left_counts_as_waiting(void **state) {
    (void)state;
    options.excess_bytes = 512 * KIB;
    start();
    for (unsigned i = 0; i < AT_ONCE_BLOCKS; i++) {
        many[i] = hakmem_alloc(MANY_BYTES);
    }
    cache_empty(thread_cache);
    struct heap *heap = &thread_cache->heap;
    unsigned sent = 0;
    while (sent < AT_ONCE_BLOCKS - 1000) {
        publish(many[sent++]);
    }
    lock_acquire(&heap->lock);
    cache_collect(thread_cache);
    lock_release(&heap->lock);
    assert_true(heap->loose_bytes > heap_waiting_bound());
    assert_ptr_equal(publish(many[sent++]), heap);
    // The same where another one collected.
    assert_true(relief_part(heap, HEAP_BUDGET_CALL));
    assert_true(heap->budget_bytes == HEAP_BUDGET_ALL);  // its own thread's again
    assert_true(heap->loose_bytes > heap_waiting_bound());
    sent += 100;
    assert_ptr_equal(publish(many[sent++]), heap);
    while (relief_part(heap, HEAP_BUDGET_CALL)) {
    }
    sent += 100;
    assert_null(publish(many[sent]));
    assert_int_equal(check_all(), 0);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_freed_late_is_bounded),
        cmocka_unit_test(test_visits_of_a_heap_with_sparse_slabs_end),
        cmocka_unit_test(test_a_refill_gives_back_a_part_of_what_came_home),
        cmocka_unit_test(test_what_ending_threads_send_is_bounded),
        cmocka_unit_test(test_who_ends_waits_for_the_heap),
        cmocka_unit_test(test_what_a_collect_left_counts_as_waiting),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
