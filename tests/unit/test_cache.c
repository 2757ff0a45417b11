// The thread cache: magazines against a model, want of memory, modes, and blocks of other heaps.
#include "isolate.h"

#include <string.h>

#include "base/bits.h"
#include "config/options.h"
#include "fake_os.h"
#include "heap/slab.h"
#include "space/metadata.h"
#include "thread/knobs.h"
#include "two_caches.h"

enum { OUT_MAX = 30000 };

// ---- Against a model ----

static struct out {
    unsigned char *block;
    uint64_t class_index;
} out[OUT_MAX];
static unsigned out_count;

static unsigned char mark_of(const void *block) {
    return (unsigned char)((uintptr_t)block / 16 * 37 >> 3 | 1);
}

static void take_one(uint64_t class_index) {
    unsigned char *block = take(class_index);
    block[0] = block[size_classes[class_index].block_bytes - 1] = mark_of(block);
    assert_true(out_count < OUT_MAX);
    out[out_count++] = (struct out){block, class_index};
}

static void give_one(unsigned place) {
    const struct out one = out[place];
    const unsigned char mark = mark_of(one.block);
    assert_int_equal(one.block[0], mark);
    assert_int_equal(one.block[size_classes[one.class_index].block_bytes - 1], mark);
    // A block that is handed out twice would be found with the other's mark, or none.
    one.block[0] = 0;
    out[place] = out[--out_count];
    give(one.class_index, one.block);
}

static void check_counts(void) {
    static uint64_t live[SIZE_CLASS_COUNT];
    memset(live, 0, sizeof live);
    for (unsigned i = 0; i < out_count; i++) {
        live[out[i].class_index]++;
    }
    for (uint64_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        const uint64_t cached = cache_block_count(cache, i);
        assert_int_equal(used_blocks(cache, i), live[i] + cached);
        assert_true(cached <= capacity(i) || cache->magazines[i].node == NULL);
    }
}

static void random_operations(unsigned rounds) {
    uint64_t random_state = test_seed();
    for (unsigned round = 0; round < rounds; round++) {
        const uint64_t dice = random_next(&random_state);
        const uint64_t class_index = dice % 4 == 0 ? dice / 8 % SIZE_CLASS_COUNT : dice / 8 % 3 * 7;
        unsigned amount = 1 + (unsigned)(dice >> 32) % (dice >> 24 & 1 ? 400 : 20);
        if (size_classes[class_index].block_bytes > 8 * KIB) {
            amount = amount % 8 + 1;
        }
        if (out_count + amount < OUT_MAX && (dice >> 20 & 1) != 0) {
            while (amount-- > 0) {
                take_one(class_index);
            }
        } else {
            while (amount-- > 0 && out_count > 0) {
                give_one(out_count - 1 - (unsigned)(random_next(&random_state) % out_count) / 2);
            }
        }
        switch (dice >> 56 & 31) {
        case 0:
            cache_decay(cache);
            break;
        case 1:
            cache_empty(cache);
            break;
        default:
            break;
        }
        check();
        if (round % 16 == 0) {
            check_counts();
        }
    }
    while (out_count > 0) {
        give_one(out_count - 1);
    }
    check_counts();
    cache_empty(cache);
    heap_release_empty(&cache->heap, false);
    check();
    struct arena_totals totals;
    arena_totals(&totals);
    assert_int_equal(totals.free_bytes, totals.mapped_bytes);
}

static void test_random_operations(void **state) {
    (void)state;
    start();
    random_operations(1500);
}

static void test_random_operations_lean(void **state) {
    (void)state;
    options.cache_class_bytes = 16 * KIB;
    options.cache_heap_bytes = 256 * KIB;
    options.cache_start_bytes = KIB;
    options.retain_slabs = 0;
    start();
    random_operations(1500);
}

static void test_random_operations_diverted(void **state) {
    (void)state;
    options.research = 1;
    start();
    random_operations(600);
}

static void test_random_operations_almost_without_cache(void **state) {
    (void)state;
    options.cache_class_bytes = 0;
    options.refill_blocks = 1;
    start();
    random_operations(600);
}

static void test_random_operations_fallback_map(void **state) {
    (void)state;
    fake_os_fail(OS_MMAP, 1, false);
    start();
    random_operations(600);
}

// ---- Magazines ----

static void test_last_freed_is_first_reused(void **state) {
    (void)state;
    start();
    void *blocks[20];
    for (unsigned i = 0; i < 20; i++) {
        blocks[i] = take(SIZE_CLASS_64);
    }
    for (unsigned i = 0; i < 20; i++) {
        give(SIZE_CLASS_64, blocks[i]);
    }
    for (unsigned i = 20; i-- > 0;) {
        assert_ptr_equal(take(SIZE_CLASS_64), blocks[i]);
    }
}

static void test_fresh_blocks_come_in_rising_order(void **state) {
    (void)state;
    start();
    char *first = take(SIZE_CLASS_64);
    for (unsigned i = 1; i < 300; i++) {
        assert_ptr_equal(take(SIZE_CLASS_64), first + (size_t)i * 64);
    }
    assert_in_range(counted(cache, COUNTER_refills), 8, 9);
}

// Several slabs of blocks, all in caches or in the slabs again.
enum { BULK = 4096 };
static void *bulk[BULK];

// Of blocks of `from` the i-th that is freed is number i * stride; of every so many numbers one has the bits `turned` turned round.
static uint64_t kept_of_bulk(struct thread_cache *from, unsigned stride, unsigned turned,
                             unsigned every) {
    for (unsigned i = 0; i < BULK; i++) {
        bulk[i] = take_from(from, SIZE_CLASS_64);
    }
    for (unsigned i = 0; i < BULK; i++) {
        give(SIZE_CLASS_64, bulk[(i * stride % BULK) ^ (i % every == 0 ? turned : 0)]);
    }
    check();
    return cache_block_count(cache, SIZE_CLASS_64);
}

static void test_blocks_freed_in_no_order_go_home(void **state) {
    (void)state;
    options.cache_start_bytes = options.cache_class_bytes;
    start();
    // Upward, downward, in groups the other way round, one in eight elsewhere: they stay, as far as the cache may go.
    assert_in_range(kept_of_bulk(cache, 1, 0, 1), BULK / 2, BULK);
    assert_in_range(kept_of_bulk(cache, BULK - 1, 0, 1), BULK / 2, BULK);
    assert_in_range(kept_of_bulk(cache, 1, 15, 1), BULK / 2, BULK);
    assert_in_range(kept_of_bulk(cache, 1, BULK / 2, 8), BULK / 2, BULK);
    cache_empty(cache);
    // Each in another page than the one before: four nodes are parked.
    const uint64_t few = kept_of_bulk(cache, 1365, 0, 1);
    assert_in_range(few, 4 * 63 + 1, 5 * 63);
    // What is taken after these few lies beside each other.
    for (unsigned i = 0; i < few; i++) {
        take(SIZE_CLASS_64);
    }
    const char *last = take(SIZE_CLASS_64);
    for (unsigned i = 0; i < 1000; i++) {
        const char *const block = take(SIZE_CLASS_64);
        assert_true(block > last);
        last = block;
    }
    check();
}

// Back and forth over four nodes, in no order: what a program frees and takes one by one.
static void test_few_blocks_freed_in_no_order_stay(void **state) {
    (void)state;
    options.cache_start_bytes = options.cache_class_bytes;
    start();
    kept_of_bulk(cache, 1365, 0, 1);
    enum { FEW = 4 * 63 };
    const uint64_t flushes = counted(cache, COUNTER_flushes);
    for (unsigned round = 0; round < 20; round++) {
        for (unsigned i = 0; i < FEW; i++) {
            bulk[i] = take(SIZE_CLASS_64);
        }
        for (unsigned i = 0; i < FEW; i++) {
            give(SIZE_CLASS_64, bulk[i * 61 % FEW]);
        }
    }
    assert_in_range(counted(cache, COUNTER_flushes) - flushes, 0, 1);
    check();
}

// They would not be handed out as neighbours here.
static void test_foreign_blocks_freed_in_no_order_stay(void **state) {
    (void)state;
    options.cache_start_bytes = options.cache_class_bytes;
    start();
    assert_in_range(kept_of_bulk(other, 1365, 0, 1), BULK / 2, BULK);
}

static void test_new_thread_has_nothing(void **state) {
    (void)state;
    start();
    struct thread_cache *none = (struct thread_cache *)(uintptr_t)&cache_of_new_thread;
    assert_false(cache_is_real(none));
    for (uint64_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        assert_null(cache_pop(none, i + 1));
        assert_null(cache_pop_depot(none, i));
        assert_false(cache_push_depot(none, i, none));
        assert_int_equal(cache_block_count(none, i), 0);
    }
    // It takes no address, NULL least of all.
    void *const addresses[] = {NULL, take(SIZE_CLASS_64), none};
    for (unsigned i = 0; i < ARRAY_COUNT(addresses); i++) {
        assert_false(cache_push(none, none->address_max, addresses[i]));
        assert_true(cache_class_of(none, (uintptr_t)addresses[i]) >= SIZE_CLASS_COUNT);
    }
}

static void test_class_of_an_address(void **state) {
    (void)state;
    start();
    for (uint64_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        const uintptr_t block = (uintptr_t)take(i);
        assert_int_equal(cache_class_of(cache, block), i);
        assert_int_equal(cache_class_of(cache, block + 1), i);
        assert_int_equal(cache_class_of(other, block), i);
    }
    static const uintptr_t foreign[] = {0,
                                        16,
                                        (UINT64_C(1) << ADDRESS_BITS) - 1,
                                        UINT64_C(1) << ADDRESS_BITS,
                                        UINT64_MAX,
                                        UINT64_C(0xffff888000000000)};
    for (size_t i = 0; i < ARRAY_COUNT(foreign); i++) {
        assert_true(cache_class_of(cache, foreign[i]) >= SIZE_CLASS_COUNT);
        assert_false(cache_push(cache, cache->address_max, (void *)foreign[i]));
    }
}

static void test_freed_lately(void **state) {
    (void)state;
    start();
    void *blocks[12];
    for (unsigned i = 0; i < 12; i++) {
        blocks[i] = take(SIZE_CLASS_64);
    }
    for (unsigned i = 0; i < 12; i++) {
        assert_false(cache_freed_lately(top_of(cache, SIZE_CLASS_64), (uintptr_t)blocks[i]));
        give(SIZE_CLASS_64, blocks[i]);
        assert_true(cache_freed_lately(top_of(cache, SIZE_CLASS_64), (uintptr_t)blocks[i]));
    }
    assert_true(cache_freed_lately(top_of(cache, SIZE_CLASS_64), (uintptr_t)blocks[5]));
    assert_false(cache_freed_lately(top_of(cache, SIZE_CLASS_64), (uintptr_t)blocks[0]));
    take(SIZE_CLASS_64);
    assert_false(cache_freed_lately(top_of(cache, SIZE_CLASS_64), (uintptr_t)blocks[11]));
}

// ---- Want of memory ----

// Nothing is mapped any more, and what was mapped is used up.
static void exhaust_metadata(void) {
    fake_os_fail(FAKE_ANY, 1, true);
    while (metadata_alloc(NODE_BYTES) != NULL) {
    }
    while (metadata_alloc(64) != NULL) {
    }
}

static void test_without_memory_for_a_node(void **state) {
    (void)state;
    start();
    take(SIZE_CLASS_64);
    // A slab to serve from, but no magazine.
    void *spare;
    assert_int_equal(heap_take(&cache->heap, SIZE_CLASS_1024, 1, &spare), 1);
    exhaust_metadata();
    void *block = take(SIZE_CLASS_1024);
    assert_null(cache->magazines[SIZE_CLASS_1024].node);
    give(SIZE_CLASS_1024, block);
    assert_int_equal(cache_block_count(cache, SIZE_CLASS_1024), 0);
    assert_ptr_equal(take(SIZE_CLASS_1024), block);
    check();
    fake_os_mend();
    give(SIZE_CLASS_1024, block);
    assert_int_equal(cache_block_count(cache, SIZE_CLASS_1024), 1);
    check();
}

static void test_without_memory_for_another_node(void **state) {
    (void)state;
    options.cache_start_bytes = 256 * KIB;
    start();
    enum { COUNT = 500 };
    static void *blocks[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        blocks[i] = take(SIZE_CLASS_64);
    }
    exhaust_metadata();
    for (unsigned i = 0; i < COUNT; i++) {
        give(SIZE_CLASS_64, blocks[i]);
        check();
    }
    assert_true(cache_block_count(cache, SIZE_CLASS_64) <= NODE_BLOCKS_MAX);
    assert_int_equal(used_blocks(cache, SIZE_CLASS_64), cache_block_count(cache, SIZE_CLASS_64));
}

// ---- Classes without a node yet ----

static void test_watched_class_checks_every_free(void **state) {
    (void)state;
    start();
    options.abort = 0;
    options.watched_operations = 6;
    char *block = take(SIZE_CLASS_64);
    char *next = take(SIZE_CLASS_64);
    stderr_begin();
    give(SIZE_CLASS_64, block + 16);
    assert_non_null(strstr(stderr_end(), "invalid free: 0x"));
    give(SIZE_CLASS_64, block);
    stderr_begin();
    give(SIZE_CLASS_64, block);
    assert_non_null(strstr(stderr_end(), "double free: 0x"));
    assert_ptr_equal(take(SIZE_CLASS_64), block);
    assert_int_equal(used_blocks(cache, SIZE_CLASS_64), 2);
    assert_null(cache->magazines[SIZE_CLASS_64].node);
    // The seventh operation opens the magazine.
    give(SIZE_CLASS_64, next);
    assert_int_equal(cache_block_count(cache, SIZE_CLASS_64), 1);
    assert_ptr_equal(take(SIZE_CLASS_64), next);
    check();
}

static void test_prewarmed_class_is_watched_first(void **state) {
    (void)state;
    options.prewarm = 10;
    options.cache_start_bytes = 64;
    knobs_start();
    start();
    options.watched_operations = 2;
    give(SIZE_CLASS_64, take(SIZE_CLASS_64));
    assert_int_equal(cache_block_count(cache, SIZE_CLASS_64), 0);
    // The third operation opens the magazine, which has what was to be made ready but for the two.
    take(SIZE_CLASS_64);
    assert_int_equal(cache_block_count(cache, SIZE_CLASS_64), 10 - 2 - 1);
}

// ---- Modes ----

static void test_diverted_cache_sends_every_call_the_slow_way(void **state) {
    (void)state;
    options.research = 1;
    start();
    for (unsigned i = 0; i < 10; i++) {
        assert_null(cache_pop(cache, SIZE_CLASS_64 + 1));
        void *block = cache_alloc_slow(cache, SIZE_CLASS_64);
        assert_non_null(block);
        assert_false(cache_push(cache, cache->address_max, block));
        cache_free_slow(cache, arena_find((uintptr_t)block), block);
        assert_ptr_equal(cache_alloc_slow(cache, SIZE_CLASS_64), block);
    }
    // The magazine works behind it: a new thread's refills bring 8 blocks at first.
    assert_in_range(counted(cache, COUNTER_refills), 1, 2);
    check();
}

static void test_checked_cache_holds_nothing(void **state) {
    (void)state;
    options.immediate_double_free = 1;
    start();
    void *block = take(SIZE_CLASS_64);
    assert_int_equal(cache_block_count(cache, SIZE_CLASS_64), 0);
    assert_int_equal(used_blocks(cache, SIZE_CLASS_64), 1);
    assert_false(cache_push(cache, cache->address_max, block));
}

// ---- Emptying and forgetting ----

static void test_empty_gives_all_blocks_back(void **state) {
    (void)state;
    start();
    for (uint64_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        churn(i, size_classes[i].block_bytes > 8 * KIB ? 20 : 400, 4);
    }
    give(SIZE_CLASS_64, take_from(other, SIZE_CLASS_64));
    cache_empty(cache);
    for (uint64_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        assert_int_equal(cache_block_count(cache, i), 0);
        assert_int_equal(used_blocks(cache, i), 0);
    }
    assert_true(heap_has_remote(&other->heap));
    check();
    churn(SIZE_CLASS_64, 100, 2);
}

static void test_forget(void **state) {
    (void)state;
    start();
    churn(SIZE_CLASS_64, 500, 4);
    give(SIZE_CLASS_64, take_from(other, SIZE_CLASS_64));
    const uint64_t used = used_blocks(cache, SIZE_CLASS_64);
    cache_forget(cache);
    check();
    assert_int_equal(cache_block_count(cache, SIZE_CLASS_64), 0);
    assert_int_equal(used_blocks(cache, SIZE_CLASS_64), used);
    cache_empty(cache);
    assert_false(heap_has_remote(&other->heap));
    churn(SIZE_CLASS_64, 500, 4);
}

// ---- Frees to other heaps ----

static void free_slowly(void *block) {
    cache_free_slow(cache, arena_find((uintptr_t)block), block);
}

// Whoever frees it: what enters a magazine is handed out again, and leaves for its own heap.
static void test_foreign_blocks_are_handed_out_again(void **state) {
    (void)state;
    start();
    void *foreign[3];
    for (unsigned i = 0; i < 3; i++) {
        foreign[i] = take_from(other, SIZE_CLASS_64);
        give(SIZE_CLASS_64, foreign[i]);
    }
    assert_int_equal(cache_block_count(cache, SIZE_CLASS_64), 3);
    assert_ptr_equal(take(SIZE_CLASS_64), foreign[2]);
    give(SIZE_CLASS_64, foreign[2]);
    assert_int_equal(counted(cache, COUNTER_refills), 0);
    check();
    cache_empty(cache);
    assert_int_equal(heap_collect(&other->heap), 3);
    assert_int_equal(used_blocks(cache, SIZE_CLASS_64), 0);
    cache_empty(other);
    assert_int_equal(used_blocks(other, SIZE_CLASS_64), 0);
    check();
}

// With blocks of its own among them: each goes to the heap it is of.
static void test_mixed_blocks_part_at_the_flush(void **state) {
    (void)state;
    start();
    enum { COUNT = 40 };
    void *own[COUNT], *foreign[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        own[i] = take(SIZE_CLASS_64);
        foreign[i] = take_from(other, SIZE_CLASS_64);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        give(SIZE_CLASS_64, own[i]);
        give(SIZE_CLASS_64, foreign[i]);
    }
    cache_empty(cache);
    assert_int_equal(used_blocks(cache, SIZE_CLASS_64), 0);
    assert_int_equal(heap_collect(&other->heap), COUNT);
    check();
}

static void test_a_thread_that_only_frees_keeps_little(void **state) {
    (void)state;
    start();
    enum { COUNT = 5000 };
    give(SIZE_CLASS_64, take_from(other, SIZE_CLASS_64));
    const uint32_t first = capacity(SIZE_CLASS_64);
    for (unsigned i = 1; i < COUNT; i++) {
        give(SIZE_CLASS_64, take_from(other, SIZE_CLASS_64));
        assert_true(cache_block_count(cache, SIZE_CLASS_64) <= first);
    }
    assert_int_equal(capacity(SIZE_CLASS_64), first);
    assert_in_range(counted(cache, COUNTER_remote_blocks), COUNT - first, COUNT);
    check();
}

static void test_neighbours_are_one_publication(void **state) {
    (void)state;
    start();
    void *blocks[32];
    for (unsigned i = 0; i < 32; i++) {
        blocks[i] = take_from(other, SIZE_CLASS_64);
    }
    for (unsigned i = 0; i < 32; i++) {
        give(SIZE_CLASS_64, blocks[i * 5 % 32]);
    }
    assert_false(heap_has_remote(&other->heap));
    cache_empty(cache);
    assert_true(heap_has_remote(&other->heap));
    assert_int_equal(counted(cache, COUNTER_remote_publishes), 1);
    assert_int_equal(counted(cache, COUNTER_remote_blocks), 32);
    assert_int_equal(heap_collect(&other->heap), 32);
    check();
}

// Words of several slabs that take turns are one publication each.
static void test_interleaved_words_are_gathered(void **state) {
    (void)state;
    start();
    enum { WORDS = 4, EACH = 8 };
    void *blocks[WORDS * 64];
    for (unsigned i = 0; i < WORDS * 64; i++) {
        blocks[i] = take_from(other, SIZE_CLASS_16);
    }
    for (unsigned i = 0; i < EACH; i++) {
        for (unsigned word = 0; word < WORDS; word++) {
            give(SIZE_CLASS_16, blocks[word * 64 + i]);
        }
    }
    cache_empty(cache);
    assert_int_equal(counted(cache, COUNTER_remote_publishes), WORDS);
    assert_int_equal(heap_collect(&other->heap), WORDS * EACH);
    check();
}

// A class without a magazine: each block goes home at once.
static void test_foreign_blocks_of_a_watched_class(void **state) {
    (void)state;
    start();
    options.watched_operations = 4;
    void *block = take_from(other, SIZE_CLASS_64);
    free_slowly(block);
    assert_int_equal(heap_collect(&other->heap), 1);
    assert_int_equal(counted(cache, COUNTER_remote_blocks), 1);
    assert_int_equal(cache_block_count(cache, SIZE_CLASS_64), 0);
    check();
}

static void test_remote_frees_of_many_slabs(void **state) {
    (void)state;
    start();
    enum { COUNT = 20000 };
    static void *blocks[COUNT];
    static uint64_t class_of[COUNT];
    uint64_t random_state = test_seed();
    for (unsigned i = 0; i < COUNT; i++) {
        class_of[i] = random_next(&random_state) % 30;
        blocks[i] = take_from(other, class_of[i]);
    }
    for (unsigned i = COUNT; i-- > 0;) {
        const unsigned place = (unsigned)(random_next(&random_state) % (i + 1));
        give(class_of[place], blocks[place]);
        blocks[place] = blocks[i];
        class_of[place] = class_of[i];
    }
    cache_empty(cache);
    assert_int_equal(counted(cache, COUNTER_remote_blocks), COUNT);
    assert_int_equal(heap_collect(&other->heap), COUNT);
    cache_empty(other);
    for (uint64_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        assert_int_equal(used_blocks(other, i), 0);
    }
    check();
}

static uint64_t misuses(void) {
    return atomic_load_relaxed(&process_counters.value[COUNTER_misuses]);
}

// At once as long as the class has no magazine.
static void test_remote_misuse_of_a_watched_class(void **state) {
    (void)state;
    options.abort = 0;
    start();
    options.watched_operations = 100;
    stderr_begin();
    char *block = take_from(other, SIZE_CLASS_64);
    free_slowly(block + 16);
    assert_int_equal(misuses(), 1);
    free_slowly(block);
    free_slowly(block);  // on its way back
    assert_int_equal(misuses(), 2);
    heap_collect(&other->heap);
    free_slowly(block);  // held by its slab
    assert_int_equal(misuses(), 3);
    assert_non_null(strstr(stderr_end(), "double free: 0x"));
    assert_int_equal(used_blocks(other, SIZE_CLASS_64), 0);
    check();
}

// At the flush otherwise.
static void test_remote_misuse(void **state) {
    (void)state;
    options.abort = 0;
    start();
    stderr_begin();
    char *block = take_from(other, SIZE_CLASS_64);
    give(SIZE_CLASS_64, block + 16);
    give(SIZE_CLASS_64, block);
    give(SIZE_CLASS_64, block);
    assert_int_equal(misuses(), 0);
    cache_empty(cache);
    assert_int_equal(misuses(), 2);
    give(SIZE_CLASS_64, block);
    cache_empty(cache);  // on its way back
    assert_int_equal(misuses(), 3);
    heap_collect(&other->heap);
    cache_empty(other);
    give(SIZE_CLASS_64, block);
    cache_empty(cache);  // held by its slab
    assert_int_equal(misuses(), 4);
    assert_non_null(strstr(stderr_end(), "double free: 0x"));
    assert_int_equal(used_blocks(other, SIZE_CLASS_64), 0);
    check();
}

// ---- Spare slabs ----

// The heap has empty slabs of one class, and may keep them.
static void make_spares(void) {
    enum { SPARES = 4 };
    cache->heap.spares.most = SPARES;
    static void *blocks[SPARES * 1024];
    for (unsigned i = 0; i < ARRAY_COUNT(blocks); i++) {
        blocks[i] = take(SIZE_CLASS_64);
    }
    for (unsigned i = 0; i < ARRAY_COUNT(blocks); i++) {
        give(SIZE_CLASS_64, blocks[i]);
    }
    cache_empty(cache);
    assert_in_range(cache->heap.bins[SIZE_CLASS_64].empty_count, 2, SPARES + 1);
}

static void test_a_class_without_blocks_takes_a_spare_slab(void **state) {
    (void)state;
    start();
    make_spares();
    const uint64_t created = counted(cache, COUNTER_slabs_created);
    give(SIZE_CLASS_1024, take(SIZE_CLASS_1024));
    assert_int_equal(counted(cache, COUNTER_slabs_created), created);
    assert_int_equal(counted(cache, COUNTER_slabs_remade), 1);
    check();
}

// In hardened mode memory does not change its class so soon.
static void test_a_checked_cache_takes_none(void **state) {
    (void)state;
    start();
    make_spares();
    cache->checked = 1;
    take_from(cache, SIZE_CLASS_1024);
    assert_int_equal(counted(cache, COUNTER_slabs_remade), 0);
    check();
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_operations),
        cmocka_unit_test(test_random_operations_lean),
        cmocka_unit_test(test_random_operations_diverted),
        cmocka_unit_test(test_random_operations_almost_without_cache),
        cmocka_unit_test(test_random_operations_fallback_map),
        cmocka_unit_test(test_last_freed_is_first_reused),
        cmocka_unit_test(test_fresh_blocks_come_in_rising_order),
        cmocka_unit_test(test_blocks_freed_in_no_order_go_home),
        cmocka_unit_test(test_few_blocks_freed_in_no_order_stay),
        cmocka_unit_test(test_foreign_blocks_freed_in_no_order_stay),
        cmocka_unit_test(test_new_thread_has_nothing),
        cmocka_unit_test(test_class_of_an_address),
        cmocka_unit_test(test_freed_lately),
        cmocka_unit_test(test_without_memory_for_a_node),
        cmocka_unit_test(test_without_memory_for_another_node),
        cmocka_unit_test(test_watched_class_checks_every_free),
        cmocka_unit_test(test_prewarmed_class_is_watched_first),
        cmocka_unit_test(test_diverted_cache_sends_every_call_the_slow_way),
        cmocka_unit_test(test_checked_cache_holds_nothing),
        cmocka_unit_test(test_empty_gives_all_blocks_back),
        cmocka_unit_test(test_forget),
        cmocka_unit_test(test_foreign_blocks_are_handed_out_again),
        cmocka_unit_test(test_mixed_blocks_part_at_the_flush),
        cmocka_unit_test(test_a_thread_that_only_frees_keeps_little),
        cmocka_unit_test(test_neighbours_are_one_publication),
        cmocka_unit_test(test_interleaved_words_are_gathered),
        cmocka_unit_test(test_foreign_blocks_of_a_watched_class),
        cmocka_unit_test(test_remote_frees_of_many_slabs),
        cmocka_unit_test(test_remote_misuse_of_a_watched_class),
        cmocka_unit_test(test_remote_misuse),
        cmocka_unit_test(test_a_class_without_blocks_takes_a_spare_slab),
        cmocka_unit_test(test_a_checked_cache_takes_none),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
