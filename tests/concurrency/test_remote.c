// Blocks that another thread frees than the one that allocated them.
#include <fcntl.h>
#include <semaphore.h>
#include <unistd.h>

#include "concurrency.h"

// ---- Storm: every thread allocates, and frees what any thread allocated

#define SLOTS 4096
static _Atomic(struct block *) slots[SLOTS];

static void storm(struct worker *worker) {
    for (unsigned i = 0; i < OPERATIONS(200000); i++) {
        struct block *block = block_new(32 + random_bytes(&worker->random));
        const unsigned slot = random_below(&worker->random, SLOTS);
        struct block *old = atomic_exchange_explicit(&slots[slot], block, memory_order_acq_rel);
        if (old != NULL) {
            block_delete(old);
        }
    }
}

static void empty_slots(void) {
    for (size_t i = 0; i < SLOTS; i++) {
        struct block *old = atomic_exchange_explicit(&slots[i], NULL, memory_order_acq_rel);
        if (old != NULL) {
            block_delete(old);
        }
    }
}

static void test_storm(void **state) {
    (void)state;
    run_workers(4, storm);
    empty_slots();
    assert_true(counter_now(COUNTER_remote_publishes) > 0 || thread_cache->checked);
}

// One class only: every publish meets another one at the same words.
static void storm_in_one_class(struct worker *worker) {
    for (unsigned i = 0; i < OPERATIONS(400000); i++) {
        struct block *block = block_new(48);
        const unsigned slot = random_below(&worker->random, 256);
        struct block *old = atomic_exchange_explicit(&slots[slot], block, memory_order_acq_rel);
        if (old != NULL) {
            block_delete(old);
        }
        if (i % 64 == 0 && !thread_cache->checked) {
            cache_empty(thread_cache);
        }
    }
}

static void test_storm_in_one_class(void **state) {
    (void)state;
    run_workers(6, storm_in_one_class);
    empty_slots();
}

// ---- Slabs that live shortly: each block a slab of few, so that slabs end and begin all the time,
// in heaps that take them from each other

static void storm_of_short_slabs(struct worker *worker) {
    for (unsigned i = 0; i < OPERATIONS(60000); i++) {
        struct block *block = block_new(40 * 1024 + random_below(&worker->random, 24 * 1024));
        const unsigned slot = random_below(&worker->random, 8);
        struct block *old = atomic_exchange_explicit(&slots[slot], block, memory_order_acq_rel);
        if (old != NULL) {
            block_delete(old);
        }
        if (i % 2 == 0 && !thread_cache->checked) {
            cache_empty(thread_cache);
        }
    }
}

static void test_storm_of_short_slabs(void **state) {
    (void)state;
    const uint64_t before = counter_now(COUNTER_slabs_released);
    assert_true(options_set("retain_slabs", "0"));
    run_workers(4, storm_of_short_slabs);
    assert_true(options_set("retain_slabs", "1"));
    empty_slots();
    const uint64_t released = counter_now(COUNTER_slabs_released) - before;
    print_message("slabs that ended: %llu\n", (unsigned long long)released);
    assert_true(released > OPERATIONS(1000));
}

// ---- Ping-pong: a batch goes back and forth; who gets it frees it and sends one of its own

#define BATCH 100
static struct {
    sem_t turn[2];
    struct block *blocks[BATCH];
} table;

static void ping_pong(struct worker *worker) {
    const unsigned own = worker->index;
    for (unsigned round = 0; round < OPERATIONS(5000); round++) {
        sem_wait(&table.turn[own]);
        for (unsigned i = 0; i < BATCH; i++) {
            if (table.blocks[i] != NULL) {
                block_delete(table.blocks[i]);
            }
            table.blocks[i] = block_new(32 + 16 * random_below(&worker->random, 8));
        }
        sem_post(&table.turn[1 - own]);
    }
}

static void test_ping_pong(void **state) {
    (void)state;
    sem_init(&table.turn[0], 0, 1);
    sem_init(&table.turn[1], 0, 0);
    run_workers(2, ping_pong);
    for (unsigned i = 0; i < BATCH; i++) {
        block_delete(table.blocks[i]);
        table.blocks[i] = NULL;
    }
}

// ---- Producers and consumers: consumers never allocate, and memory stays bounded

#define QUEUE 1024
#define PRODUCERS 2
#define CONSUMERS 2
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct block *blocks[QUEUE];
    unsigned first, count, producing;
    uint64_t slab_bytes_max;
} queue = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void produce(struct worker *worker) {
    for (unsigned i = 0; i < OPERATIONS(200000); i++) {
        struct block *block = block_new(32 + random_below(&worker->random, 480));
        pthread_mutex_lock(&queue.mutex);
        while (queue.count == QUEUE) {
            pthread_cond_wait(&queue.changed, &queue.mutex);
        }
        queue.blocks[(queue.first + queue.count++) % QUEUE] = block;
        pthread_cond_broadcast(&queue.changed);
        pthread_mutex_unlock(&queue.mutex);
        if (i % OPERATIONS(5000) == 0) {
            const uint64_t slab_bytes = gauge_now(GAUGE_slab_bytes);
            pthread_mutex_lock(&queue.mutex);
            if (slab_bytes > queue.slab_bytes_max) {
                queue.slab_bytes_max = slab_bytes;
            }
            pthread_mutex_unlock(&queue.mutex);
        }
    }
    pthread_mutex_lock(&queue.mutex);
    queue.producing--;
    pthread_cond_broadcast(&queue.changed);
    pthread_mutex_unlock(&queue.mutex);
}

static void consume(void) {
    for (;;) {
        struct block *block = NULL;
        pthread_mutex_lock(&queue.mutex);
        while (queue.count == 0 && queue.producing != 0) {
            pthread_cond_wait(&queue.changed, &queue.mutex);
        }
        if (queue.count != 0) {
            block = queue.blocks[queue.first];
            queue.first = (queue.first + 1) % QUEUE;
            queue.count--;
            pthread_cond_broadcast(&queue.changed);
        }
        pthread_mutex_unlock(&queue.mutex);
        if (block == NULL) {
            return;
        }
        block_delete(block);
    }
}

static void produce_or_consume(struct worker *worker) {
    if (worker->index < PRODUCERS) {
        produce(worker);
    } else {
        consume();
    }
}

static void test_producers_and_consumers(void **state) {
    (void)state;
    queue.producing = PRODUCERS;
    run_workers(PRODUCERS + CONSUMERS, produce_or_consume);
    assert_int_equal(queue.count, 0);
    // What is out at most: the queue, and what four thread caches hold.
    print_message("producers' slabs: at most %llu KiB\n",
                  (unsigned long long)queue.slab_bytes_max / 1024);
    assert_true(queue.slab_bytes_max < 24 * MIB);
}

// ---- Owners that exit while others free their blocks

#define OWNERS 8
static _Atomic(unsigned) owners_left;

static void *own_and_exit(void *argument) {
    uint64_t random = random_start((unsigned)(uintptr_t)argument + 100);
    for (unsigned i = 0; i < 600; i++) {
        const unsigned slot = random_below(&random, SLOTS);
        struct block *block = block_new(32 + random_below(&random, 600));
        struct block *old = atomic_exchange_explicit(&slots[slot], block, memory_order_acq_rel);
        if (old != NULL) {
            block_delete(old);
        }
    }
    atomic_fetch_sub_explicit(&owners_left, 1, memory_order_release);
    return NULL;
}

static void free_what_is_there(struct worker *worker) {
    while (atomic_load_explicit(&owners_left, memory_order_acquire) != 0) {
        const unsigned slot = random_below(&worker->random, SLOTS);
        struct block *old = atomic_exchange_explicit(&slots[slot], NULL, memory_order_acq_rel);
        if (old != NULL) {
            block_delete(old);
        }
    }
}

static void owners_or_freers(struct worker *worker) {
    if (worker->index != 0) {
        free_what_is_there(worker);
        return;
    }
    pthread_t threads[OWNERS];
    for (unsigned round = 0; round < OPERATIONS(400); round++) {
        for (unsigned i = 0; i < OWNERS; i++) {
            void *seed = (void *)(uintptr_t)(round * OWNERS + i);
            REQUIRE(pthread_create(&threads[i], NULL, own_and_exit, seed) == 0);
        }
        for (unsigned i = 0; i < OWNERS; i++) {
            pthread_join(threads[i], NULL);
        }
    }
}

static void test_owners_that_exit(void **state) {
    (void)state;
    atomic_store(&owners_left, OPERATIONS(400) * OWNERS);
    run_workers(3, owners_or_freers);
    empty_slots();
}

// ---- One block freed by two threads at the same moment: one of them is told

#define PAIRS 2000
static struct block *pairs[PAIRS];
static struct block *anchors[PAIRS];

static void free_pairs(struct worker *worker) {
    (void)worker;
    for (unsigned i = 0; i < PAIRS; i++) {
        hakmem_dealloc(pairs[i]);
    }
    if (cache_is_real(thread_cache) && !thread_cache->checked) {
        cache_empty(thread_cache);
    }
}

static uint64_t double_frees(size_t bytes, unsigned count) {
    const uint64_t before = counter_now(COUNTER_misuses);
    // Every second block stays, so that no slab ends: a free into one that did is another story.
    for (unsigned i = 0; i < PAIRS; i++) {
        pairs[i] = i < count ? block_new(bytes) : NULL;
        anchors[i] = i < count && bytes <= SMALL_BYTES_MAX ? block_new(bytes) : NULL;
    }
    run_workers(2, free_pairs);
    maintenance_reclaim();
    for (unsigned i = 0; i < PAIRS; i++) {
        if (anchors[i] != NULL) {
            block_delete(anchors[i]);
        }
    }
    return counter_now(COUNTER_misuses) - before;
}

static void test_double_frees_in_two_threads(void **state) {
    (void)state;
    static const struct {
        size_t bytes;
        unsigned count;
    } rows[] = {{48, PAIRS}, {2000, PAIRS}, {200 * KIB, 100}, {3 * MIB, 20}};
    uint64_t reported[ARRAY_COUNT(rows)];
    // The reports, one for each pair, are counted, not shown.
    const int shown = dup(2);
    const int nowhere = open("/dev/null", O_WRONLY);
    assert_true(options_set("abort", "0"));
    dup2(nowhere, 2);
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        reported[i] = double_frees(rows[i].bytes, rows[i].count);
    }
    dup2(shown, 2);
    close(shown);
    close(nowhere);
    assert_true(options_set("abort", "1"));
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        assert_int_equal(reported[i], rows[i].count);
    }
}

static int finish_with_reports(void **state) {
    (void)state;
    require_all_back();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_storm, finish_test),
        cmocka_unit_test_teardown(test_storm_in_one_class, finish_test),
        cmocka_unit_test_teardown(test_storm_of_short_slabs, finish_test),
        cmocka_unit_test_teardown(test_ping_pong, finish_test),
        cmocka_unit_test_teardown(test_producers_and_consumers, finish_test),
        cmocka_unit_test_teardown(test_owners_that_exit, finish_test),
        cmocka_unit_test_teardown(test_double_frees_in_two_threads, finish_with_reports),
    };
    print_message("seed %llu\n", (unsigned long long)base_seed());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
