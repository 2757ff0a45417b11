// What a thread cache may hold: slow start, limits, the depot, and what it gives back when idle.
#include "isolate.h"

#include "config/options.h"
#include "os/os.h"
#include "thread/knobs.h"
#include "two_caches.h"

static void test_slow_start(void **state) {
    (void)state;
    options.cache_start_bytes = 8 * KIB;
    options.cache_class_bytes = 256 * KIB;
    start();
    give(SIZE_CLASS_1024, take(SIZE_CLASS_1024));
    assert_int_equal(capacity(SIZE_CLASS_1024), 8);
    give(SIZE_CLASS_16, take(SIZE_CLASS_16));
    assert_int_equal(capacity(SIZE_CLASS_16), 512);
    give(SIZE_CLASS_65536, take(SIZE_CLASS_65536));
    assert_int_equal(capacity(SIZE_CLASS_65536), 1);
    churn(SIZE_CLASS_1024, 300, 1);
    const uint32_t after_one = capacity(SIZE_CLASS_1024);
    assert_in_range(after_one, 9, 64);
    churn(SIZE_CLASS_1024, 300, 30);
    // At its limit, and not above.
    assert_int_equal(capacity(SIZE_CLASS_1024), 256);
    churn(SIZE_CLASS_65536, 50, 20);
    assert_int_equal(capacity(SIZE_CLASS_65536), 4);
}

// A thread may end soon: its first refills are small, and no block of them more than a node.
static void test_first_refills_of_a_thread_are_small(void **state) {
    (void)state;
    start();
    options.watched_operations = 0;
    static void *blocks[2 * NODE_BLOCKS_MAX];
    for (unsigned life = 0; life < 2; life++) {
        const uint64_t refills = counted(cache, COUNTER_refills);
        blocks[0] = take(SIZE_CLASS_64);
        assert_int_equal(cache_block_count(cache, SIZE_CLASS_64), 8 - 1);
        for (unsigned i = 1; i < NODE_BLOCKS_MAX; i++) {
            blocks[i] = take(SIZE_CLASS_64);
        }
        // 8, 8, 16, and what is left of a node.
        assert_int_equal(cache_block_count(cache, SIZE_CLASS_64), 0);
        assert_int_equal(counted(cache, COUNTER_refills) - refills, 4);
        blocks[NODE_BLOCKS_MAX] = take(SIZE_CLASS_64);
        assert_int_equal(cache_block_count(cache, SIZE_CLASS_64), NODE_BLOCKS_MAX - 1);
        for (unsigned i = 0; i <= NODE_BLOCKS_MAX; i++) {
            give(SIZE_CLASS_64, blocks[i]);
        }
        // As at a thread's end; the next one gets this cache.
        cache_empty(cache);
    }
    check();
}

// What came one by one while the class was watched counts.
static void test_watched_operations_are_part_of_the_first_node(void **state) {
    (void)state;
    start();
    options.watched_operations = 16;
    static void *blocks[NODE_BLOCKS_MAX];
    for (unsigned i = 0; i < 17; i++) {
        blocks[i] = take(SIZE_CLASS_64);
    }
    assert_int_equal(cache_block_count(cache, SIZE_CLASS_64), 16 - 1);
    for (unsigned i = 17; i < NODE_BLOCKS_MAX; i++) {
        blocks[i] = take(SIZE_CLASS_64);
    }
    assert_int_equal(cache_block_count(cache, SIZE_CLASS_64), 0);
    for (unsigned i = 0; i < NODE_BLOCKS_MAX; i++) {
        give(SIZE_CLASS_64, blocks[i]);
    }
    check();
}

static void test_frees_alone_do_not_raise_the_capacity(void **state) {
    (void)state;
    options.cache_start_bytes = 8 * KIB;
    start();
    static void *blocks[4000];
    for (unsigned i = 0; i < 4000; i++) {
        blocks[i] = take(SIZE_CLASS_1024);
    }
    for (unsigned i = 0; i < 4000; i++) {
        give(SIZE_CLASS_1024, blocks[i]);
    }
    assert_in_range(capacity(SIZE_CLASS_1024), 8, 16);
    assert_true(cache_block_count(cache, SIZE_CLASS_1024) <= 16);
    check();
}

// The widest options: the number of nodes that wait has 16 bits.
static void test_capacity_that_a_class_starts_with_is_bounded(void **state) {
    (void)state;
    options.cache_start_bytes = options.cache_class_bytes = 64 * MIB;
    options.cache_heap_bytes = options.cache_total_bytes = 1 * GIB;
    options.learn = 0;
    start();
    churn(SIZE_CLASS_16, 100, 2);
    assert_in_range(capacity(SIZE_CLASS_16), UINT16_MAX * (NODE_BLOCKS_MAX - 1),
                    UINT16_MAX * NODE_BLOCKS_MAX);
    check();
}

static void test_capacity_of_a_whole_cache(void **state) {
    (void)state;
    options.cache_heap_bytes = 300 * KIB;
    start();
    for (uint64_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        churn(i, size_classes[i].block_bytes > 8 * KIB ? 20 : 300, 10);
    }
    // Classes opened late have one block at least, whatever is left.
    uint64_t floor_bytes = 0;
    for (uint64_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        assert_true(capacity(i) >= 1);
        floor_bytes += NODE_BYTES + size_classes[i].block_bytes;
    }
    assert_true(cache->capacity_bytes <= 300 * KIB + floor_bytes);
}

static void test_caches_of_all_threads_share_a_total(void **state) {
    (void)state;
    options.cache_total_bytes = 640 * KIB;
    options.cache_heap_bytes = 4 * MIB;
    atomic_store_relaxed(&cache_count_in_use, 10);
    start();
    churn(SIZE_CLASS_64, 5000, 20);
    churn(SIZE_CLASS_1024, 300, 20);
    assert_true(cache->capacity_bytes <= 64 * KIB);
    // Each class in proportion: 256 KiB of 4 MiB, 4 KiB of 64 KiB.
    assert_int_equal(capacity(SIZE_CLASS_64), 64);
    assert_int_equal(capacity(SIZE_CLASS_1024), 4);
    atomic_store_relaxed(&cache_count_in_use, 1);
    churn(SIZE_CLASS_64, 5000, 20);
    churn(SIZE_CLASS_1024, 300, 20);
    assert_int_equal(capacity(SIZE_CLASS_64), 640);
    assert_int_equal(capacity(SIZE_CLASS_1024), 40);
    assert_true(cache->capacity_bytes <= 640 * KIB);
}

// What was learned of a class is its own, not in proportion, but within the options of the moment.
static void test_learned_limits(void **state) {
    (void)state;
    options.cache_class_bytes = 256 * KIB;
    options.cap_max_tiny = 512 * KIB;
    options.cache_total_bytes = 2 * MIB;
    start();
    churn(SIZE_CLASS_1024, 2000, 20);
    assert_int_equal(capacity(SIZE_CLASS_1024), 128);
    cache->magazines[SIZE_CLASS_1024].limit = 2000;
    churn(SIZE_CLASS_1024, 2000, 20);
    assert_int_equal(capacity(SIZE_CLASS_1024), 512);
    cache->magazines[SIZE_CLASS_512].limit = 2000;
    options.cache_class_bytes = 16 * KIB;
    options.cap_max_tiny = 64 * KIB;
    churn(SIZE_CLASS_512, 2000, 20);
    assert_int_equal(capacity(SIZE_CLASS_512), 128);
}

static uint64_t allowed_by(uint64_t budget_bytes) {
    const struct capacity_claim claim = {.budget_bytes = budget_bytes};
    return capacity_allowed(&claim);
}

static void test_learned_budget(void **state) {
    (void)state;
    options.cache_heap_bytes = 4 * MIB;
    options.cache_total_bytes = 32 * MIB;
    start();
    assert_int_equal(allowed_by(0), 4 * MIB);
    assert_int_equal(allowed_by(6 * MIB), 6 * MIB);
    assert_int_equal(allowed_by(CAPACITY_BUDGET_MOST), 8 * MIB);
    options.cache_heap_bytes = 1 * MIB;
    assert_int_equal(allowed_by(6 * MIB), 2 * MIB);
    options.cache_heap_bytes = 16 * MIB;
    assert_int_equal(allowed_by(6 * MIB), 16 * MIB);
    options.cache_total_bytes = 3 * MIB;
    assert_int_equal(allowed_by(6 * MIB), 3 * MIB);
}

static void test_blocks_beyond_a_small_share_are_not_cached(void **state) {
    (void)state;
    options.cache_total_bytes = 32 * MIB;
    options.cache_heap_bytes = 4 * MIB;
    options.cache_class_bytes = 256 * KIB;
    // Set, so that nothing is earned.
    option_store_number(OPTION_cache_total_bytes, 32 * MIB, OPTION_ORIGIN_ENVIRONMENT);
    atomic_store_relaxed(&cache_count_in_use, 1000);
    start();
    for (uint64_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        churn(i, 20, 3);
        assert_true(size_classes[i].block_bytes <= 2 * KIB || capacity(i) == 0);
        assert_true(cache_block_count(cache, i) <= capacity(i));
    }
    assert_true(capacity(SIZE_CLASS_16) > 0);
    assert_true(cache->capacity_bytes <= 32 * MIB / 1000);
}

// Between decays one class works, and another one, which finds no room, has two calls.
static void decay_beside(uint64_t busy_class, uint64_t class_index) {
    for (unsigned i = 0; i < 3; i++) {
        churn(busy_class, 300, 1);
        give(class_index, take(class_index));
        cache_decay(cache);
    }
}

// What other classes have and do not use any more goes to one that has no room.
static void test_classes_at_rest_make_room(void **state) {
    (void)state;
    options.cache_total_bytes = 1 * MIB;
    options.cache_heap_bytes = 4 * MIB;
    start();
    for (uint64_t i = 0; i < SIZE_CLASS_4096; i++) {
        churn(i, 300, 10);
    }
    give(SIZE_CLASS_49152, take(SIZE_CLASS_49152));
    assert_int_equal(capacity(SIZE_CLASS_49152), 0);
    const uint32_t before = capacity(SIZE_CLASS_64);
    assert_true(before > 0 && capacity(SIZE_CLASS_128) > 0);
    decay_beside(SIZE_CLASS_64, SIZE_CLASS_49152);
    give(SIZE_CLASS_49152, take(SIZE_CLASS_49152));
    assert_true(capacity(SIZE_CLASS_49152) >= 1);
    assert_true(capacity(SIZE_CLASS_64) >= before);
    // One that lives on hits takes no slow path either: none goes without a node.
    assert_in_range(capacity(SIZE_CLASS_128), 1, before - 1);
    check();
}

// Where the share has no room for a block in any case, nothing is given up for it.
static void test_no_room_is_made_in_a_small_share(void **state) {
    (void)state;
    options.cache_total_bytes = 32 * MIB;
    options.cache_heap_bytes = 4 * MIB;
    atomic_store_relaxed(&cache_count_in_use, 1000);
    start();
    churn(SIZE_CLASS_16, 300, 10);
    const uint32_t before = capacity(SIZE_CLASS_16);
    assert_true(before > 0);
    decay_beside(SIZE_CLASS_32, SIZE_CLASS_49152);
    assert_int_equal(capacity(SIZE_CLASS_49152), 0);
    assert_int_equal(capacity(SIZE_CLASS_16), before);
}

static void test_all_caches_of_a_large_machine(void **state) {
    (void)state;
    const uint64_t initial = options.cache_total_bytes;
    const struct machine {
        unsigned processors;
        enum option_origin origin;
        uint64_t bytes;
    } machines[] = {
        {1, OPTION_ORIGIN_DEFAULT, initial},       {32, OPTION_ORIGIN_DEFAULT, initial},
        {100, OPTION_ORIGIN_DEFAULT, 100 * MIB},   {256, OPTION_ORIGIN_DEFAULT, 256 * MIB},
        {256, OPTION_ORIGIN_ENVIRONMENT, initial}, {256, OPTION_ORIGIN_MODE, initial},
    };
    for (size_t i = 0; i < ARRAY_COUNT(machines); i++) {
        fake_os_set_processors(machines[i].processors);
        option_store_number(OPTION_cache_total_bytes, initial, machines[i].origin);
        capacity_fit_to_processors();
        assert_int_equal(options.cache_total_bytes, machines[i].bytes);
        assert_int_equal(options_origin(OPTION_cache_total_bytes), machines[i].origin);
    }
    // Somebody sets it, and has come as far as the value.
    option_store_number(OPTION_cache_total_bytes, 8 * MIB, OPTION_ORIGIN_DEFAULT);
    capacity_fit_to_processors();
    assert_int_equal(options.cache_total_bytes, 8 * MIB);
}

// Threads came when they were few, and have it all.
static void test_shares_of_what_is_used_up(void **state) {
    (void)state;
    options.cache_total_bytes = 8 * MIB;
    options.cache_heap_bytes = 4 * MIB;
    atomic_store_relaxed(&cache_count_in_use, 4);
    start();
    struct capacity_claim none = {0};
    capacity_join(&none, 8 * MIB, false);
    churn(SIZE_CLASS_64, 5000, 20);
    const uint64_t overdrawn = cache->capacity_bytes;
    assert_in_range(overdrawn, 1, 2 * MIB / 8);
    capacity_leave(&none, 8 * MIB);
    churn(SIZE_CLASS_64, 5000, 20);
    assert_true(cache->capacity_bytes >= 4 * overdrawn);
    check();
}

static void test_a_cache_beyond_its_share_starts_anew(void **state) {
    (void)state;
    options.cache_total_bytes = 32 * MIB;
    options.cache_heap_bytes = 4 * MIB;
    start();
    for (uint64_t i = 0; i < SIZE_CLASS_4096; i++) {
        churn(i, 300, 10);
    }
    const uint64_t alone = cache->capacity_bytes;
    cache_decay(cache);
    assert_int_equal(cache->capacity_bytes, alone);
    atomic_store_relaxed(&cache_count_in_use, 100);
    assert_true(alone > 2 * 32 * MIB / 100);
    cache_decay(cache);
    assert_int_equal(cache->capacity_bytes, 0);
    for (uint64_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        assert_int_equal(cache_block_count(cache, i), 0);
        assert_int_equal(used_blocks(cache, i), 0);
    }
    check();
    churn(SIZE_CLASS_64, 300, 10);
    assert_in_range(cache->capacity_bytes, 1, 32 * MIB / 100);
}

// What was learned of a class is forgotten with its capacity, and its node serves again: however often.
static void test_forgotten_knobs_leave_no_nodes_behind(void **state) {
    (void)state;
    start();
    uint64_t bytes = 0;
    for (unsigned round = 0; round < 1000; round++) {
        give(SIZE_CLASS_64, take(SIZE_CLASS_64));
        const uint32_t before = capacity(SIZE_CLASS_64);
        assert_int_not_equal(before, 0);
        cache_reset_knobs(cache);
        assert_int_equal(capacity(SIZE_CLASS_64), before);  // nothing was learned
        cache_set_limit(cache, SIZE_CLASS_64, before);
        cache_reset_knobs(cache);
        assert_int_equal(capacity(SIZE_CLASS_64), 0);
        bytes = round < 10 ? metadata_bytes() : bytes;
    }
    assert_int_equal(metadata_bytes(), bytes);
    check();
}

// An option that is made less while a thread runs counts at its next decay, also where the thread has its whole share.
static void test_less_than_before_is_followed(void **state) {
    (void)state;
    options.learn = 0;
    options.cache_class_bytes = 256 * KIB;
    start();
    churn(SIZE_CLASS_1024, 300, 30);
    churn(SIZE_CLASS_64, 300, 30);
    assert_int_equal(capacity(SIZE_CLASS_1024), 256);
    const uint32_t before = capacity(SIZE_CLASS_64);
    cache_decay(cache);
    assert_int_equal(capacity(SIZE_CLASS_1024), 256);
    options.cache_class_bytes = 16 * KIB;
    cache_decay(cache);
    assert_int_equal(capacity(SIZE_CLASS_1024), 16);
    assert_in_range(cache_block_count(cache, SIZE_CLASS_1024), 0, 16);
    assert_int_equal(capacity(SIZE_CLASS_64), before < 256 ? before : 256);
    check();
    options.cache_class_bytes = 256 * KIB;
    for (uint64_t i = 0; i < SIZE_CLASS_4096; i++) {
        churn(i, 300, 10);
    }
    cache_decay(cache);
    assert_true(cache->capacity_bytes > 2 * MIB);
    options.cache_heap_bytes = 256 * KIB;
    cache_decay(cache);
    assert_in_range(cache->capacity_bytes, 0, 256 * KIB);
    check();
    options.cache_class_bytes = options.cache_heap_bytes = 0;
    churn(SIZE_CLASS_64, 300, 10);
    cache_decay(cache);
    assert_in_range(capacity(SIZE_CLASS_64), 0, 1);
    check();
}

static void test_prewarmed_capacity(void **state) {
    (void)state;
    options.prewarm = 100;
    knobs_start();
    options.cache_start_bytes = 16;
    start();
    take(SIZE_CLASS_4096);
    assert_int_equal(capacity(SIZE_CLASS_4096), 100);
    assert_int_equal(cache_block_count(cache, SIZE_CLASS_4096), 62);
    check();
}

static void test_refill_size(void **state) {
    (void)state;
    options.refill_blocks = 5;
    start();
    take(SIZE_CLASS_16);
    assert_int_equal(cache_block_count(cache, SIZE_CLASS_16), 4);
    assert_int_equal(counted(cache, COUNTER_refilled_blocks), 5);
}

// ---- Flush ----

// Frees blocks until a flush gives some back, and returns how many.
static uint64_t give_until_flush(void **blocks, unsigned *count) {
    const uint64_t before = counted(cache, COUNTER_flushed_blocks);
    while (counted(cache, COUNTER_flushed_blocks) == before) {
        assert_true(*count > 0);
        give(SIZE_CLASS_128, blocks[--*count]);
    }
    return counted(cache, COUNTER_flushed_blocks) - before;
}

static void test_flush_size(void **state) {
    (void)state;
    // One node of the class, and no more.
    options.cache_start_bytes = options.cache_class_bytes = 63 * 128;
    start();
    enum { COUNT = 600 };
    static void *blocks[COUNT];
    unsigned count = 0;
    while (count < COUNT) {
        blocks[count++] = take(SIZE_CLASS_128);
    }
    // Few at first; more while nothing but frees comes.
    assert_int_equal(give_until_flush(blocks, &count), 8);
    assert_int_equal(give_until_flush(blocks, &count), 16);
    assert_int_equal(give_until_flush(blocks, &count), 32);
    assert_int_equal(give_until_flush(blocks, &count), 63);
    assert_int_equal(give_until_flush(blocks, &count), 63);
    check();
    // Few again once more was taken than came since.
    give(SIZE_CLASS_128, blocks[--count]);
    for (unsigned round = 0; round < 20; round++) {
        // In another order: the same blocks in their old places look like nothing taken.
        blocks[count + 1] = take(SIZE_CLASS_128);
        blocks[count] = take(SIZE_CLASS_128);
        count += 2;
        assert_int_equal(give_until_flush(blocks, &count), 8);
    }
    check();
}

static void test_flush_of_few_blocks_leaves_half(void **state) {
    (void)state;
    options.cache_start_bytes = options.cache_class_bytes = 6 * 128;
    start();
    void *blocks[20];
    unsigned count = 0;
    while (count < ARRAY_COUNT(blocks)) {
        blocks[count++] = take(SIZE_CLASS_128);
    }
    assert_int_equal(give_until_flush(blocks, &count), 3);
    assert_int_equal(give_until_flush(blocks, &count), 6);
    check();
}

// ---- Depot ----

static void test_depot_serves_until_a_tick_is_due(void **state) {
    (void)state;
    options.cache_start_bytes = 256 * KIB;
    start();
    for (unsigned due = 0; due < 2; due++) {
        void *block = take(SIZE_CLASS_16);
        bool pushed;
        uint64_t waited_ticks;
        do {
            const uint64_t now_ticks = os_ticks();
            cache->pace_ticks = now_ticks - (due != 0 ? OS_TICKS_PACE : 0);
            atomic_store_relaxed(&cache->heap.counters.value[COUNTER_depot_swaps], 640);
            pushed = cache_push_depot(cache, SIZE_CLASS_16, block);
            waited_ticks = os_ticks() - now_ticks;
        } while (due == 0 && !pushed && waited_ticks >= OS_TICKS_PACE);  // the machine let it wait
        assert_int_equal(pushed, due == 0);
    }
}

static void test_depot_takes_what_the_magazine_cannot(void **state) {
    (void)state;
    options.cache_start_bytes = 256 * KIB;
    start();
    enum { COUNT = 2000 };
    static void *blocks[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        blocks[i] = take(SIZE_CLASS_16);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        give(SIZE_CLASS_16, blocks[i]);
    }
    check();
    assert_int_equal(counted(cache, COUNTER_flushes), 0);
    const uint64_t refills = counted(cache, COUNTER_refills);
    assert_true(cache_block_count(cache, SIZE_CLASS_16) >= COUNT);
    assert_in_range(atomic_load_relaxed(&cache->magazines[SIZE_CLASS_16].depot_count), 30, 33);
    // And gives it back, the latest first, without the heap.
    for (unsigned i = COUNT; i-- > 0;) {
        assert_ptr_equal(take(SIZE_CLASS_16), blocks[i]);
    }
    assert_int_equal(counted(cache, COUNTER_refills), refills);
    assert_true(counted(cache, COUNTER_depot_swaps) >= 60);
    check();
}

static void test_alternating_at_the_border_of_a_node(void **state) {
    (void)state;
    options.cache_start_bytes = 256 * KIB;
    start();
    static void *blocks[130];
    for (unsigned i = 0; i < 130; i++) {
        blocks[i] = take(SIZE_CLASS_16);
    }
    const uint64_t metadata = metadata_bytes();
    for (unsigned round = 0; round < 1000; round++) {
        for (unsigned i = 1; i < 128; i++) {
            give(SIZE_CLASS_16, blocks[i]);
        }
        for (unsigned i = 1; i < 128; i++) {
            blocks[i] = take(SIZE_CLASS_16);
        }
    }
    // The empty node is kept for the next crossing.
    assert_true(metadata_bytes() - metadata <= 4 * NODE_BYTES);
    check();
}

// ---- Decay ----

static void test_idle_magazine_shrinks(void **state) {
    (void)state;
    options.cache_start_bytes = 256 * KIB;
    start();
    static void *blocks[60];
    for (unsigned i = 0; i < 60; i++) {
        blocks[i] = take(SIZE_CLASS_64);
    }
    for (unsigned i = 0; i < 60; i++) {
        give(SIZE_CLASS_64, blocks[i]);
    }
    cache_decay(cache);  // it was active since
    const uint64_t count = cache_block_count(cache, SIZE_CLASS_64);
    assert_true(count >= 60);
    cache_decay(cache);
    assert_int_equal(cache_block_count(cache, SIZE_CLASS_64), count - count / 2);
    for (unsigned i = 0; i < 10; i++) {
        cache_decay(cache);
    }
    assert_int_equal(cache_block_count(cache, SIZE_CLASS_64), 1);
    check();
}

// A depot that shrinks and grows again by a few nodes asks nobody for them.
static void test_empty_nodes_are_kept(void **state) {
    (void)state;
    options.cache_start_bytes = 256 * KIB;
    start();
    enum { NODES = 2 * EMPTY_NODES_MOST, COUNT = NODES * NODE_BLOCKS_MAX };
    static void *blocks[COUNT];
    const struct range {
        unsigned nodes;
        bool stays;
    } ranges[] = {{1, true}, {EMPTY_NODES_MOST - METADATA_ALIGNED_BATCH, true}, {NODES - 1, false}};
    for (unsigned i = 0; i < COUNT; i++) {
        blocks[i] = take(SIZE_CLASS_16);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        give(SIZE_CLASS_16, blocks[i]);
    }
    for (unsigned i = 0; i < ARRAY_COUNT(ranges); i++) {
        const unsigned count = ranges[i].nodes * NODE_BLOCKS_MAX;
        const uint32_t asked = metadata_state.lock.generation;
        for (unsigned round = 0; round < 10; round++) {
            for (unsigned j = 0; j < count; j++) {
                blocks[j] = take(SIZE_CLASS_16);
            }
            assert_in_range(empty_node_count(cache), 0, EMPTY_NODES_MOST);
            for (unsigned j = 0; j < count; j++) {
                give(SIZE_CLASS_16, blocks[j]);
            }
        }
        assert_true((metadata_state.lock.generation == asked) == ranges[i].stays);
        check();
    }
    // Other classes take them as well.
    for (unsigned i = 0; i < 3 * NODE_BLOCKS_MAX; i++) {
        blocks[i] = take(SIZE_CLASS_16);
    }
    const unsigned kept = empty_node_count(cache);
    assert_true(kept != 0);
    give(SIZE_CLASS_32, take(SIZE_CLASS_32));
    assert_int_equal(empty_node_count(cache), kept - 1);
    check();
}

static void test_depot_nodes_not_needed_go(void **state) {
    (void)state;
    options.cache_start_bytes = 256 * KIB;
    start();
    enum { COUNT = 1000 };
    static void *blocks[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        blocks[i] = take(SIZE_CLASS_16);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        give(SIZE_CLASS_16, blocks[i]);
    }
    cache_decay(cache);
    _Atomic(uint16_t) *depot_count = &cache->magazines[SIZE_CLASS_16].depot_count;  // relaxed
    const unsigned before = atomic_load_relaxed(depot_count);
    assert_true(before >= 15);
    // Meanwhile the thread needs some of them.
    for (unsigned i = 0; i < 300; i++) {
        blocks[i] = take(SIZE_CLASS_16);
    }
    const unsigned low = atomic_load_relaxed(depot_count);
    for (unsigned i = 0; i < 300; i++) {
        give(SIZE_CLASS_16, blocks[i]);
    }
    cache_decay(cache);
    assert_in_range(atomic_load_relaxed(depot_count), before - low - 1, before - low + 1);
    cache_decay(cache);
    assert_int_equal(atomic_load_relaxed(depot_count), 0);
    check();
}

// Hundreds of nodes go home by and by: no slow path gives more than 256 of a class.
static void test_a_large_depot_goes_by_and_by(void **state) {
    (void)state;
    options.cache_start_bytes = options.cache_class_bytes = 1 * MIB;
    start();
    static void *blocks[60000];
    for (size_t i = 0; i < ARRAY_COUNT(blocks); i++) {
        blocks[i] = take(SIZE_CLASS_16);
    }
    for (size_t i = 0; i < ARRAY_COUNT(blocks); i++) {
        give(SIZE_CLASS_16, blocks[i]);
    }
    _Atomic(uint16_t) *depot_count = &cache->magazines[SIZE_CLASS_16].depot_count;  // relaxed
    cache_decay(cache);
    const unsigned before = atomic_load_relaxed(depot_count);
    assert_true(before >= 900);
    cache_decay(cache);
    assert_int_equal(atomic_load_relaxed(depot_count), before - 256);
    // What it may hold is less at once; what it holds, by the next decays.
    cache_set_limit(cache, SIZE_CLASS_16, (20 * NODE_BLOCKS_MAX) | CAPACITY_CUT);
    assert_int_equal(capacity(SIZE_CLASS_16), 20 * NODE_BLOCKS_MAX);
    assert_int_equal(atomic_load_relaxed(depot_count), before - 512);
    check();
    for (size_t i = 0; i < ARRAY_COUNT(blocks) / 2; i++) {
        blocks[i] = take(SIZE_CLASS_16);
    }
    for (size_t i = 0; i < ARRAY_COUNT(blocks) / 2; i++) {
        give(SIZE_CLASS_16, blocks[i]);
    }
    cache_decay(cache);
    cache_decay(cache);
    assert_in_range(atomic_load_relaxed(depot_count), 0, 19);
    // Less than a node is so at once.
    cache_set_limit(cache, SIZE_CLASS_16, 10 | CAPACITY_CUT);
    assert_in_range(cache_block_count(cache, SIZE_CLASS_16), 1, 10);
    check();
}

// What goes through the depot is use, though the magazine is where it was before; a decay neither is use nor hides it.
static void test_the_learner_is_told_of_the_depot(void **state) {
    (void)state;
    options.cache_start_bytes = 256 * KIB;
    start();
    static void *blocks[1000];
    struct magazine *magazine = &cache->magazines[SIZE_CLASS_16];
    for (unsigned round = 0; round < 2; round++) {
        for (size_t i = 0; i < ARRAY_COUNT(blocks); i++) {
            blocks[i] = take(SIZE_CLASS_16);
        }
        for (size_t i = 0; i < ARRAY_COUNT(blocks); i++) {
            give(SIZE_CLASS_16, blocks[i]);
        }
        if (round == 0) {
            magazine->active &= MAGAZINE_ACTIVE;  // it looked
        }
    }
    assert_int_not_equal(magazine->active & MAGAZINE_TOUCHED, 0);
    cache_decay(cache);
    cache_decay(cache);
    assert_int_equal(magazine->active, MAGAZINE_TOUCHED | MAGAZINE_DECAYED);
    magazine->active &= MAGAZINE_ACTIVE;
    cache_decay(cache);
    assert_int_equal(magazine->active & MAGAZINE_TOUCHED, 0);
}

// ---- The learner's limit of a class ----

static void fill(uint64_t class_index, unsigned count) {
    options.cap_max_tiny = 1 * MIB;
    cache->magazines[class_index].limit = count | CAPACITY_CUT;
    // The capacity follows while the class refills and overflows in turn.
    churn(class_index, count, 20);
    assert_in_range(cache_block_count(cache, class_index), count / 3, count);
}

static void test_limit_takes_back_at_once(void **state) {
    (void)state;
    start();
    // With a depot; within one node; to one block; and it can grow again.
    fill(SIZE_CLASS_1024, 500);
    cache_decay(cache);
    assert_true(cache->magazines[SIZE_CLASS_1024].depot_low > 3);
    for (uint32_t limit = 300; limit > 0; limit = limit == 1 ? 0 : limit / 3) {
        cache_set_limit(cache, SIZE_CLASS_1024, limit);
        assert_in_range(cache_block_count(cache, SIZE_CLASS_1024), 1, limit);
        assert_int_equal(capacity(SIZE_CLASS_1024), limit);
        check();
        void *block = take(SIZE_CLASS_1024);
        assert_false(cache_freed_lately(top_of(cache, SIZE_CLASS_1024), (uintptr_t)block));
        give(SIZE_CLASS_1024, block);
        assert_true(cache_freed_lately(top_of(cache, SIZE_CLASS_1024), (uintptr_t)block));
    }
    fill(SIZE_CLASS_1024, 200);
    check();
    // More than it has is no more than a permission.
    const uint32_t before = capacity(SIZE_CLASS_1024);
    cache_set_limit(cache, SIZE_CLASS_1024, 2 * before);
    assert_int_equal(capacity(SIZE_CLASS_1024), before);
}

static void test_limit_of_a_diverted_cache(void **state) {
    (void)state;
    start();
    fill(SIZE_CLASS_256, 63);
    cache_divert(cache, true);
    cache_set_limit(cache, SIZE_CLASS_256, 5);
    assert_in_range(cache_block_count(cache, SIZE_CLASS_256), 1, 5);
    check();
    cache_divert(cache, false);
    check();
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slow_start),
        cmocka_unit_test(test_first_refills_of_a_thread_are_small),
        cmocka_unit_test(test_watched_operations_are_part_of_the_first_node),
        cmocka_unit_test(test_frees_alone_do_not_raise_the_capacity),
        cmocka_unit_test(test_capacity_that_a_class_starts_with_is_bounded),
        cmocka_unit_test(test_capacity_of_a_whole_cache),
        cmocka_unit_test(test_caches_of_all_threads_share_a_total),
        cmocka_unit_test(test_learned_limits),
        cmocka_unit_test(test_learned_budget),
        cmocka_unit_test(test_blocks_beyond_a_small_share_are_not_cached),
        cmocka_unit_test(test_classes_at_rest_make_room),
        cmocka_unit_test(test_no_room_is_made_in_a_small_share),
        cmocka_unit_test(test_all_caches_of_a_large_machine),
        cmocka_unit_test(test_shares_of_what_is_used_up),
        cmocka_unit_test(test_a_cache_beyond_its_share_starts_anew),
        cmocka_unit_test(test_forgotten_knobs_leave_no_nodes_behind),
        cmocka_unit_test(test_less_than_before_is_followed),
        cmocka_unit_test(test_prewarmed_capacity),
        cmocka_unit_test(test_refill_size),
        cmocka_unit_test(test_flush_size),
        cmocka_unit_test(test_flush_of_few_blocks_leaves_half),
        cmocka_unit_test(test_depot_serves_until_a_tick_is_due),
        cmocka_unit_test(test_depot_takes_what_the_magazine_cannot),
        cmocka_unit_test(test_alternating_at_the_border_of_a_node),
        cmocka_unit_test(test_idle_magazine_shrinks),
        cmocka_unit_test(test_empty_nodes_are_kept),
        cmocka_unit_test(test_depot_nodes_not_needed_go),
        cmocka_unit_test(test_a_large_depot_goes_by_and_by),
        cmocka_unit_test(test_the_learner_is_told_of_the_depot),
        cmocka_unit_test(test_limit_takes_back_at_once),
        cmocka_unit_test(test_limit_of_a_diverted_cache),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
