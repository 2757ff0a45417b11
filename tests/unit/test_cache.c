// The thread cache: magazines against a model, want of memory, modes, and the table of frees to other
// heaps.
#include "isolate.h"

#include <string.h>

#include "base/bits.h"
#include "config/options.h"
#include "fake_os.h"
#include "heap/slab.h"
#include "space/metadata.h"
#include "thread/knobs.h"
#include "thread/remote.h"
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
    heap_release_empty(&cache->heap, 0);
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
    assert_in_range(counted(cache, COUNTER_refills), 5, 6);
}

static void test_new_thread_has_nothing(void **state) {
    (void)state;
    start();
    struct thread_cache *none = (struct thread_cache *)(uintptr_t)&cache_of_new_thread;
    assert_false(cache_is_real(none));
    for (uint64_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        assert_null(cache_pop(none, i));
        assert_null(cache_pop_depot(none, i));
        assert_false(cache_push(none, i, none));
        assert_false(cache_push_depot(none, i, none));
        assert_int_equal(cache_block_count(none, i), 0);
    }
    // It owns no address, NULL least of all.
    assert_true(cache_owned_class(none, 0) >= SIZE_CLASS_COUNT);
    assert_true(cache_owned_class(none, (uintptr_t)take(SIZE_CLASS_64)) >= SIZE_CLASS_COUNT);
}

static void test_owned_class(void **state) {
    (void)state;
    start();
    for (uint64_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        const uintptr_t block = (uintptr_t)take(i);
        assert_int_equal(cache_owned_class(cache, block), i);
        assert_int_equal(cache_owned_class(cache, block + 1), i);
        assert_true(cache_owned_class(other, block) >= SIZE_CLASS_COUNT);
    }
    static const uintptr_t foreign[] = {0,
                                        16,
                                        (UINT64_C(1) << ADDRESS_BITS) - 1,
                                        UINT64_C(1) << ADDRESS_BITS,
                                        UINT64_MAX,
                                        UINT64_C(0xffff888000000000)};
    for (size_t i = 0; i < ARRAY_COUNT(foreign); i++) {
        assert_true(cache_owned_class(cache, foreign[i]) >= SIZE_CLASS_COUNT);
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
        assert_false(cache_freed_lately(cache, SIZE_CLASS_64, (uintptr_t)blocks[i]));
        give(SIZE_CLASS_64, blocks[i]);
        assert_true(cache_freed_lately(cache, SIZE_CLASS_64, (uintptr_t)blocks[i]));
    }
    assert_true(cache_freed_lately(cache, SIZE_CLASS_64, (uintptr_t)blocks[5]));
    assert_false(cache_freed_lately(cache, SIZE_CLASS_64, (uintptr_t)blocks[0]));
    take(SIZE_CLASS_64);
    assert_false(cache_freed_lately(cache, SIZE_CLASS_64, (uintptr_t)blocks[11]));
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

static void test_prewarmed_class_is_not_watched(void **state) {
    (void)state;
    options.prewarm = 10;
    knobs_start();
    start();
    options.watched_operations = 1000;
    give(SIZE_CLASS_64, take(SIZE_CLASS_64));
    assert_in_range(cache_block_count(cache, SIZE_CLASS_64), 10, NODE_BLOCKS_MAX);
}

// ---- Modes ----

static void test_diverted_cache_sends_every_call_the_slow_way(void **state) {
    (void)state;
    options.research = 1;
    start();
    for (unsigned i = 0; i < 10; i++) {
        assert_null(cache_pop(cache, SIZE_CLASS_64));
        void *block = cache_alloc_slow(cache, SIZE_CLASS_64);
        assert_non_null(block);
        assert_false(cache_push(cache, SIZE_CLASS_64, block));
        cache_free_slow(cache, arena_find((uintptr_t)block), block);
        assert_ptr_equal(cache_alloc_slow(cache, SIZE_CLASS_64), block);
    }
    // The magazine works behind it.
    assert_int_equal(counted(cache, COUNTER_refills), 1);
    check();
}

static void test_checked_cache_holds_nothing(void **state) {
    (void)state;
    options.immediate_double_free = 1;
    start();
    void *block = take(SIZE_CLASS_64);
    assert_int_equal(cache_block_count(cache, SIZE_CLASS_64), 0);
    assert_int_equal(used_blocks(cache, SIZE_CLASS_64), 1);
    assert_false(cache_push(cache, SIZE_CLASS_64, block));
}

// ---- Emptying and forgetting ----

static void test_empty_gives_all_blocks_back(void **state) {
    (void)state;
    start();
    for (uint64_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        churn(i, size_classes[i].block_bytes > 8 * KIB ? 20 : 400, 4);
    }
    void *foreign = take_from(other, SIZE_CLASS_64);
    remote_free(cache, arena_find((uintptr_t)foreign), foreign);
    remote_publish(cache);
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
    void *foreign = take_from(other, SIZE_CLASS_64);
    remote_free(cache, arena_find((uintptr_t)foreign), foreign);
    const uint64_t used = used_blocks(cache, SIZE_CLASS_64);
    cache_forget(cache);
    check();
    assert_int_equal(cache_block_count(cache, SIZE_CLASS_64), 0);
    assert_int_equal(used_blocks(cache, SIZE_CLASS_64), used);
    remote_publish(cache);
    assert_false(heap_has_remote(&other->heap));
    churn(SIZE_CLASS_64, 500, 4);
}

// ---- Frees to other heaps ----

static void free_remote(void *block) {
    remote_free(cache, arena_find((uintptr_t)block), block);
}

static void test_neighbours_need_no_look_up(void **state) {
    (void)state;
    start();
    const uint64_t classes[] = {SIZE_CLASS_16, SIZE_CLASS_48, SIZE_CLASS_1024, SIZE_CLASS_32768};
    for (unsigned i = 0; i < sizeof classes / sizeof *classes; i++) {
        const size_t block_bytes = size_classes[classes[i]].block_bytes;
        const size_t count = size_classes[classes[i]].block_count;
        const unsigned group = count < 64 ? (unsigned)count : 64;
        const uint64_t before = counted(cache, COUNTER_remote_publishes);
        char *blocks[65];
        for (unsigned k = 0; k < group; k++) {
            blocks[k] = take_from(other, classes[i]);
        }
        assert_false(cache_free_neighbour(cache, (uintptr_t)blocks[0]));
        free_remote(blocks[0]);
        // Not the same block again, no other start, no address around the group.
        assert_false(cache_free_neighbour(cache, (uintptr_t)blocks[0]));
        assert_false(cache_free_neighbour(cache, (uintptr_t)blocks[1] + 8));
        assert_false(cache_free_neighbour(cache, (uintptr_t)blocks[1] + block_bytes - 1));
        assert_false(cache_free_neighbour(cache, (uintptr_t)blocks[0] - block_bytes));
        assert_false(cache_free_neighbour(cache, (uintptr_t)blocks[0] + group * block_bytes));
        assert_false(cache_free_neighbour(cache, 0));
        for (unsigned k = group - 1; k > 0; k--) {
            const bool fills = group == 64 && k == 1;
            assert_int_equal(cache_free_neighbour(cache, (uintptr_t)blocks[k]), !fills);
            if (fills) {
                free_remote(blocks[k]);
            }
        }
        // A word that went is no longer looked at, even where its bits were all of a slab's.
        remote_publish(cache);
        assert_int_equal(counted(cache, COUNTER_remote_publishes), before + 1);
        assert_false(cache_free_neighbour(cache, (uintptr_t)blocks[1]));
        assert_int_equal(heap_collect(&other->heap), group);
    }
    assert_int_equal(counted(cache, COUNTER_misuses), 0);
    check();
}

static void test_neighbour_that_its_slab_holds(void **state) {
    (void)state;
    start();
    char *first = take_from(other, SIZE_CLASS_64), *second = take_from(other, SIZE_CLASS_64);
    void *back = second;
    heap_put(&other->heap, &back, 1);
    free_remote(first);
    assert_false(cache_free_neighbour(cache, (uintptr_t)second));
    remote_publish(cache);
    assert_int_equal(heap_collect(&other->heap), 1);
    check();
}

static void test_diverted_caches_know_no_neighbour(void **state) {
    (void)state;
    options.research = 1;
    start();
    char *first = take_from(other, SIZE_CLASS_64), *second = take_from(other, SIZE_CLASS_64);
    free_remote(first);
    assert_false(cache_free_neighbour(cache, (uintptr_t)second));
    free_remote(second);
    remote_publish(cache);
    assert_int_equal(heap_collect(&other->heap), 2);
    check();
}

// What the thread frees of others it hands out again, as long as it allocates of the class itself.
static void test_foreign_blocks_are_kept_for_the_next_allocations(void **state) {
    (void)state;
    start();
    void *foreign[3] = {take_from(other, SIZE_CLASS_64), take_from(other, SIZE_CLASS_64),
                        take_from(other, SIZE_CLASS_64)};
    assert_false(remote_adopt(cache, (uintptr_t)foreign[0]));  // no magazine yet
    void *own = take(SIZE_CLASS_64);
    take(SIZE_CLASS_64);  // so that there is room
    take(SIZE_CLASS_64);
    assert_true(remote_adopt(cache, (uintptr_t)foreign[0]));
    assert_false(remote_adopt(cache, (uintptr_t)foreign[0]));  // the same again
    assert_false(remote_adopt(cache, (uintptr_t)foreign[1] + 16));
    assert_false(remote_adopt(cache, 0));
    assert_false(remote_adopt(cache, (uintptr_t)&own));
    assert_true(remote_adopt(cache, (uintptr_t)foreign[1]));
    assert_ptr_equal(take(SIZE_CLASS_64), foreign[1]);
    assert_ptr_equal(take(SIZE_CLASS_64), foreign[0]);
    // One that its slab holds is no block in use.
    heap_put(&other->heap, &foreign[2], 1);
    assert_false(remote_adopt(cache, (uintptr_t)foreign[2]));
    assert_true(remote_adopt(cache, (uintptr_t)foreign[0]));
    assert_true(remote_adopt(cache, (uintptr_t)foreign[1]));
    give(SIZE_CLASS_64, own);
    check();
    // They leave the cache for their own heap.
    cache_empty(cache);
    assert_int_equal(heap_collect(&other->heap), 2);
    assert_int_equal(used_blocks(cache, SIZE_CLASS_64), 2);
    check();
}

static void test_some_foreign_blocks_go_home(void **state) {
    (void)state;
    start();
    take(SIZE_CLASS_64);
    void *blocks[64];
    for (unsigned i = 0; i < 64; i++) {
        blocks[i] = take_from(other, SIZE_CLASS_64);
    }
    unsigned kept = 0;
    for (unsigned i = 0; i < 64; i++) {
        take(SIZE_CLASS_64);  // so that there is room
        kept += remote_adopt(cache, (uintptr_t)blocks[i]);
    }
    assert_int_equal(kept, 64 - 64 / ADOPTIONS_PER_RETURN);
    check();
}

static void test_a_thread_that_only_frees_keeps_nothing(void **state) {
    (void)state;
    start();
    void *own[200];
    for (unsigned i = 0; i < 200; i++) {
        own[i] = take(SIZE_CLASS_64);
    }
    void *foreign = take_from(other, SIZE_CLASS_64);
    assert_true(remote_adopt(cache, (uintptr_t)foreign));
    cache->magazines[SIZE_CLASS_64].refilled = 0;  // as after an overflow
    assert_false(remote_adopt(cache, (uintptr_t)take_from(other, SIZE_CLASS_64)));
    for (unsigned i = 0; i < 200; i++) {
        give(SIZE_CLASS_64, own[i]);
    }
    check();
}

static void test_diverted_caches_adopt_nothing(void **state) {
    (void)state;
    options.research = 1;
    start();
    take(SIZE_CLASS_64);
    assert_false(remote_adopt(cache, (uintptr_t)take_from(other, SIZE_CLASS_64)));
    check();
}

static void test_64_frees_are_one_publication(void **state) {
    (void)state;
    start();
    static void *blocks[64];
    for (unsigned i = 0; i < 64; i++) {
        blocks[i] = take_from(other, SIZE_CLASS_64);
    }
    assert_int_equal((uintptr_t)blocks[0] % (64 * 64), 0);
    for (unsigned i = 0; i < 63; i++) {
        free_remote(blocks[i]);
    }
    assert_false(heap_has_remote(&other->heap));
    free_remote(blocks[63]);
    assert_true(heap_has_remote(&other->heap));
    assert_int_equal(counted(cache, COUNTER_remote_publishes), 1);
    assert_int_equal(counted(cache, COUNTER_remote_blocks), 64);
    assert_int_equal(heap_collect(&other->heap), 64);
    check();
}

static void test_remote_frees_of_many_slabs(void **state) {
    (void)state;
    start();
    enum { COUNT = 20000 };
    static void *blocks[COUNT];
    uint64_t random_state = test_seed();
    for (unsigned i = 0; i < COUNT; i++) {
        blocks[i] = take_from(other, random_next(&random_state) % 30);
    }
    for (unsigned i = COUNT; i-- > 0;) {
        const unsigned place = (unsigned)(random_next(&random_state) % (i + 1));
        void *block = blocks[place];
        blocks[place] = blocks[i];
        free_remote(block);
    }
    remote_publish(cache);
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

static void test_remote_misuse(void **state) {
    (void)state;
    options.abort = 0;
    start();
    stderr_begin();
    char *block = take_from(other, SIZE_CLASS_64);
    struct run *slab = arena_find((uintptr_t)block);
    free_remote(block + 16);
    assert_int_equal(misuses(), 1);
    remote_free(cache, slab, (char *)slab->start + 63 * 64);  // never handed out
    const uint64_t after = misuses();
    free_remote(block);
    free_remote(block);  // still in the table
    assert_int_equal(misuses(), after + 1);
    remote_publish(cache);
    free_remote(block);  // on its way back
    remote_publish(cache);
    assert_int_equal(misuses(), after + 2);
    heap_collect(&other->heap);
    cache_empty(other);
    free_remote(block);  // held by its slab
    assert_int_equal(misuses(), after + 3);
    assert_non_null(strstr(stderr_end(), "double free: 0x"));
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
        cmocka_unit_test(test_new_thread_has_nothing),
        cmocka_unit_test(test_owned_class),
        cmocka_unit_test(test_freed_lately),
        cmocka_unit_test(test_without_memory_for_a_node),
        cmocka_unit_test(test_without_memory_for_another_node),
        cmocka_unit_test(test_watched_class_checks_every_free),
        cmocka_unit_test(test_prewarmed_class_is_not_watched),
        cmocka_unit_test(test_diverted_cache_sends_every_call_the_slow_way),
        cmocka_unit_test(test_checked_cache_holds_nothing),
        cmocka_unit_test(test_empty_gives_all_blocks_back),
        cmocka_unit_test(test_forget),
        cmocka_unit_test(test_neighbours_need_no_look_up),
        cmocka_unit_test(test_neighbour_that_its_slab_holds),
        cmocka_unit_test(test_diverted_caches_know_no_neighbour),
        cmocka_unit_test(test_foreign_blocks_are_kept_for_the_next_allocations),
        cmocka_unit_test(test_some_foreign_blocks_go_home),
        cmocka_unit_test(test_a_thread_that_only_frees_keeps_nothing),
        cmocka_unit_test(test_diverted_caches_adopt_nothing),
        cmocka_unit_test(test_64_frees_are_one_publication),
        cmocka_unit_test(test_remote_frees_of_many_slabs),
        cmocka_unit_test(test_remote_misuse),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
