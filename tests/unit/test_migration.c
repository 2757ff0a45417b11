// Slabs that move to a thread that needs one: from whom, and from whom not.
#include "isolate.h"

#include <pthread.h>
#include <semaphore.h>
#include <string.h>

#include "api/alloc.h"
#include "config/options.h"
#include "control/check.h"
#include "counted.h"
#include "fake_os.h"
#include "heap/slab.h"
#include "thread/lifecycle.h"
#include "thread/migration.h"

enum { BLOCKS = 200, BLOCK_BYTES = 1000 };

// A thread that fills its heap, waits, and ends.
struct worker {
    pthread_t thread;
    sem_t filled, released;
    size_t bytes;
    void *blocks[BLOCKS];
};

static void *fill_and_wait(void *argument) {
    struct worker *worker = argument;
    for (unsigned i = 0; i < BLOCKS; i++) {
        worker->blocks[i] = hakmem_alloc(worker->bytes);
    }
    sem_post(&worker->filled);
    sem_wait(&worker->released);
    return NULL;
}

static void worker_start_with(struct worker *worker, size_t bytes) {
    worker->bytes = bytes;
    sem_init(&worker->filled, 0, 0);
    sem_init(&worker->released, 0, 0);
    assert_int_equal(pthread_create(&worker->thread, NULL, fill_and_wait, worker), 0);
    sem_wait(&worker->filled);
}

static void worker_start(struct worker *worker) {
    worker_start_with(worker, BLOCK_BYTES);
}

static void worker_end(struct worker *worker) {
    sem_post(&worker->released);
    assert_int_equal(pthread_join(worker->thread, NULL), 0);
}

static void free_blocks(const struct worker *worker, unsigned first) {
    for (unsigned i = first; i < BLOCKS; i += 2) {
        hakmem_dealloc(worker->blocks[i]);
    }
    cache_empty(thread_cache);
}

static void take_many(unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        assert_non_null(hakmem_alloc(BLOCK_BYTES));
    }
    assert_int_equal(check_all(), 0);
}

// So long that the next slow path looks at the clock.
static void pass_ms(uint64_t ms) {
    fake_os_pass_ms(ms);
    thread_cache->pace_ticks = 0;
}

static void test_slabs_of_an_ended_thread(void **state) {
    (void)state;
    struct worker worker;
    lifecycle_attach();
    worker_start(&worker);
    worker_end(&worker);
    free_blocks(&worker, 0);
    take_many(BLOCKS / 4);
    assert_int_not_equal(counted(COUNTER_slabs_moved), 0);
    const uint64_t created = counted(COUNTER_slabs_created);
    take_many(BLOCKS / 8);
    assert_int_equal(counted(COUNTER_slabs_created), created);
    // The rest of its blocks, in slabs that have moved and in those that have not.
    free_blocks(&worker, 1);
    assert_int_equal(check_all(), 0);
}

// Whichever heap has them, and whoever is asked before.
static void test_slabs_of_one_among_several(void **state) {
    (void)state;
    struct worker workers[3];
    lifecycle_attach();
    for (unsigned i = 0; i < ARRAY_COUNT(workers); i++) {
        worker_start_with(&workers[i], i == 1 ? BLOCK_BYTES : 8 * BLOCK_BYTES);
    }
    for (unsigned i = 0; i < ARRAY_COUNT(workers); i++) {
        worker_end(&workers[i]);
    }
    free_blocks(&workers[1], 0);
    take_many(BLOCKS / 4);
    assert_int_not_equal(counted(COUNTER_slabs_moved), 0);
}

// Every other block of a thread that sleeps is freed by this one.
static void start_with_freed_blocks(struct worker *worker) {
    lifecycle_attach();
    worker_start(worker);
    free_blocks(worker, 0);
}

static void test_slabs_of_a_sleeping_thread_but_not_of_an_active_one(void **state) {
    (void)state;
    struct worker worker;
    start_with_freed_blocks(&worker);
    take_many(BLOCKS / 2);
    assert_int_equal(counted(COUNTER_slabs_moved), 0);
    pass_ms(20);
    take_many(BLOCKS);
    assert_int_not_equal(counted(COUNTER_slabs_moved), 0);
    worker_end(&worker);
    free_blocks(&worker, 1);
    assert_int_equal(check_all(), 0);
}

// Of a thread that leaves what others freed lying, whatever the clock says.
static void test_slabs_of_a_thread_that_collects_nothing(void **state) {
    (void)state;
    struct worker worker;
    start_with_freed_blocks(&worker);
    const unsigned blocks_of_page = size_classes[size_class_index(BLOCK_BYTES)].block_count;
    take_many(SUPERSLAB_PAGES / 2 * blocks_of_page);
    assert_int_equal(counted(COUNTER_slabs_moved), 0);
    take_many(SUPERSLAB_PAGES / 2 * blocks_of_page);
    const uint64_t moved = counted(COUNTER_slabs_moved);
    assert_int_not_equal(moved, 0);
    // It has been collected, and sleeps on.
    take_many(BLOCKS);
    assert_true(counted(COUNTER_slabs_moved) > moved);
    worker_end(&worker);
    free_blocks(&worker, 1);
    assert_int_equal(check_all(), 0);
}

// One that has nothing to collect may live on its magazines.
static void test_slabs_of_a_thread_with_nothing_to_collect(void **state) {
    (void)state;
    struct worker worker;
    lifecycle_attach();
    worker_start(&worker);
    const unsigned blocks_of_page = size_classes[size_class_index(BLOCK_BYTES)].block_count;
    take_many(2 * SUPERSLAB_PAGES * blocks_of_page);
    assert_int_equal(counted(COUNTER_slabs_moved), 0);
    worker_end(&worker);
}

static void test_hardened_heaps_keep_their_slabs(void **state) {
    (void)state;
    options.quarantine_blocks = 16;
    struct worker worker;
    lifecycle_attach();
    thread_cache->checked = 1;
    worker_start(&worker);
    worker_end(&worker);
    free_blocks(&worker, 0);
    take_many(BLOCKS / 4);
    assert_int_equal(counted(COUNTER_slabs_moved), 0);
}

static void test_a_lone_heap_has_nobody_to_ask(void **state) {
    (void)state;
    struct thread_cache *cache = lifecycle_attach();
    lock_acquire(&cache->heap.lock);
    for (unsigned i = 0; i < 2; i++) {
        migration_bring(cache, cache, 5);
        assert_false(heap_has_blocks(&cache->heap, 5));
    }
    lock_release(&cache->heap.lock);
    take_many(BLOCKS);
    assert_int_equal(counted(COUNTER_slabs_moved), 0);
}

static const struct heap *watched;
static unsigned calls_count, locked_count;

static void note_lock(enum os_call call, void *start, size_t bytes) {
    (void)call;
    (void)start;
    (void)bytes;
    calls_count++;
    locked_count += atomic_load_relaxed(&((struct heap *)(uintptr_t)watched)->lock.state) != 0 &&
                    atomic_load_relaxed(&thread_cache->heap.lock.state) != 0;
}

// What the donor has too much of goes when the own heap's lock is no longer held, and by that thread, which needs it.
static void test_nothing_is_given_back_under_two_locks(void **state) {
    (void)state;
    options.excess_bytes = 64 * MIB;  // or this thread would look after what it sent
    options.retain_slabs = 0;
    const size_t bytes = 32 * KIB;
    struct worker worker;
    lifecycle_attach();
    worker_start_with(&worker, bytes);
    for (unsigned i = 0; i < BLOCKS; i++) {
        memset(worker.blocks[i], 1, bytes);
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (i % 16 != 0 || i < 100) {
            hakmem_dealloc(worker.blocks[i]);
        }
    }
    cache_empty(thread_cache);
    options.excess_bytes = 0;
    const struct run *slab = arena_find((uintptr_t)worker.blocks[192]);
    struct heap *donor = atomic_load_relaxed(&((struct run *)(uintptr_t)slab)->heap);
    assert_true(heap_has_remote(donor));
    // Asleep, and not by the clock: no visitor of idle heaps comes.
    struct thread_cache *sleeper = CONTAINER_OF(donor, struct thread_cache, heap);
    sleeper->activity_asked = atomic_load_relaxed(&sleeper->activity);
    sleeper->pages_asked = SUPERSLAB_PAGES;
    watched = donor;
    fake_os_watch(note_lock);
    for (unsigned i = 0; i < BLOCKS; i++) {
        assert_non_null(hakmem_alloc(bytes));
    }
    fake_os_watch(NULL);
    assert_int_not_equal(counted(COUNTER_slabs_moved), 0);
    assert_false(heap_has_remote(donor));
    assert_int_not_equal(calls_count, 0);
    assert_int_equal(locked_count, 0);
    assert_int_not_equal(counted(COUNTER_harvests), 0);
    assert_null(thread_cache->to_relieve);
    assert_true(donor->budget_bytes == HEAP_BUDGET_ALL);
    worker_end(&worker);
}

// An idle heap's free pages are given back also when they came with a slab.
static void test_moved_slab_is_purged_in_its_new_heap(void **state) {
    (void)state;
    static struct heap from, to;
    lifecycle_start();
    heap_init(&from, 100);
    heap_init(&to, 101);
    void *blocks[8];
    lock_acquire(&from.lock);
    assert_int_equal(heap_take(&from, SIZE_CLASS_4096, 8, blocks), 8);
    assert_true(heap_move_slab(&from, &to, SIZE_CLASS_4096));
    assert_false(to.put_since_purge);  // nothing was freed in it
    assert_true(heap_move_slab(&to, &from, SIZE_CLASS_4096));
    heap_put(&from, blocks, 4);
    assert_true(heap_move_slab(&from, &to, SIZE_CLASS_4096));
    lock_release(&from.lock);
    assert_true(to.put_since_purge);
}

static struct thread_cache *cache_of_worker(void) {
    for (struct thread_cache *cache = lifecycle_caches();; cache = cache->next_all) {
        assert_non_null(cache);
        if (cache != thread_cache) {
            return cache;
        }
    }
}

// Who asks knows the time of its own last tick, which may be long ago: what it sees of others is not taken for so old.
static void test_who_slept_takes_nobody_for_asleep(void **state) {
    (void)state;
    options.decay_interval_ms = 100;
    options.slab_purge_delay_ms = 1000;
    assert_non_null(lifecycle_attach());
    struct worker worker;
    worker_start(&worker);
    pass_ms(1);
    take_many(1);
    struct thread_cache *busy = cache_of_worker();
    free_blocks(&worker, 0);
    pass_ms(1);
    take_many(200);
    for (unsigned i = 0; i < 10; i++) {
        // The worker goes on, and this thread sleeps.
        fake_os_pass_ms(2000);
        atomic_bump_owned(&busy->activity, 1u);
        hakmem_dealloc(hakmem_alloc(2 * BLOCK_BYTES * (i + 1)));
        take_many(100);
        pass_ms(0);
        take_many(100);
        assert_int_equal(busy->activity_seen, busy->activity);
        assert_true(migration_idle_ms(busy, thread_cache->clock_ms) < MIGRATION_IDLE_MS);
    }
    assert_int_equal(counted(COUNTER_harvests), 0);
    worker_end(&worker);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slabs_of_an_ended_thread),
        cmocka_unit_test(test_slabs_of_one_among_several),
        cmocka_unit_test(test_slabs_of_a_sleeping_thread_but_not_of_an_active_one),
        cmocka_unit_test(test_slabs_of_a_thread_that_collects_nothing),
        cmocka_unit_test(test_slabs_of_a_thread_with_nothing_to_collect),
        cmocka_unit_test(test_hardened_heaps_keep_their_slabs),
        cmocka_unit_test(test_a_lone_heap_has_nobody_to_ask),
        cmocka_unit_test(test_nothing_is_given_back_under_two_locks),
        cmocka_unit_test(test_moved_slab_is_purged_in_its_new_heap),
        cmocka_unit_test(test_who_slept_takes_nobody_for_asleep),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
