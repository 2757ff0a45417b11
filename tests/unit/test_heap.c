// Heaps: blocks by size class, frees by other threads, purging; misuse is noticed and
// leaves the heap sound.
#include "isolate.h"

#include "base/bits.h"
#include "heap/heap_purge.h"
#include "heap/slab.h"
#include "two_heaps.h"

enum { TABLE_COUNT = 3000 };

// ---- The model: blocks out, each filled with a mark of its own ----

struct out {
    unsigned char *block;
    uint64_t class_index;
};

static struct out table[TABLE_COUNT];
static unsigned out_count;

static size_t bytes_of(uint64_t class_index) {
    return size_classes[class_index].block_bytes;
}

static unsigned char mark_of(const void *block) {
    return (unsigned char)((uintptr_t)block / 16 * 37 >> 3 | 1);
}

static void remember(void *block, uint64_t class_index) {
    assert_true(out_count < TABLE_COUNT);
    table[out_count++] = (struct out){block, class_index};
    memset(block, mark_of(block), bytes_of(class_index));
}

static struct out forget(unsigned place) {
    const struct out out = table[place];
    for (size_t at = 0; at < bytes_of(out.class_index); at += 16) {
        assert_int_equal(out.block[at], mark_of(out.block));
    }
    table[place] = table[--out_count];
    return out;
}

// live + free + tails == slab bytes, per class.
static void check_totals(void) {
    for (uint64_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        struct heap_class_totals totals;
        heap_class_totals(&heap, i, &totals);
        uint64_t out = 0;
        for (unsigned n = 0; n < out_count; n++) {
            out += table[n].class_index == i;
        }
        assert_int_equal(totals.used_blocks, out);
        const struct size_class *class = &size_classes[i];
        const uint64_t slabs = totals.slab_bytes / (class->slab_pages * PAGE_BYTES);
        assert_int_equal(totals.used_blocks + totals.free_blocks, slabs * class->block_count);
    }
}

// Statistics hold the lock that the heap's thread waits for.
static void test_totals_do_not_look_at_slabs(void **state) {
    (void)state;
    start();
    const uint64_t class_index = size_class_index(4000);
    for (unsigned i = 0; i < 40; i++) {
        void *block;
        assert_int_equal(heap_take(&heap, class_index, 1, &block), 1);
        remember(block, class_index);
    }
    struct bin *bin = &heap.bins[class_index];
    assert_true(bin->slab_count > 1);
    const struct list partial = bin->partial;
    bin->partial.next = bin->partial.previous = NULL;
    check_totals();
    bin->partial = partial;
    check();
}

static void publish(const void *block) {
    struct run *slab = slab_of(block);
    const int index = slab_index(slab, (uintptr_t)block);
    assert_true(index >= 0);
    heap_publish(slab, (unsigned)index / 64, bit((unsigned)index % 64));
}

static void put_some(uint64_t *random_state) {
    void *blocks[63];
    unsigned count = 0;
    const unsigned want = 1 + (unsigned)(random_next(random_state) % 63);
    while (count < want && out_count > 0) {
        // Neighbours often, as a magazine holds them.
        const unsigned place = random_next(random_state) % 4 == 0
                                   ? (unsigned)(random_next(random_state) % out_count)
                                   : out_count - 1;
        blocks[count++] = forget(place).block;
    }
    // All at once, or few words at a time: a flush does either.
    if (random_next(random_state) % 2 == 0) {
        heap_put(&heap, blocks, count);
        return;
    }
    for (unsigned put = 0; put < count;) {
        const unsigned step = heap_put_few(&heap, blocks + put, count - put);
        assert_in_range(step, 1, count - put);
        put += step;
    }
}

static void take_some(uint64_t *random_state) {
    const uint64_t dice = random_next(random_state);
    const uint64_t class_index = dice % 3 == 0 ? dice / 8 % SIZE_CLASS_COUNT : dice / 8 % 12;
    unsigned want = 1 + (unsigned)(dice >> 32) % 63;
    want = want < TABLE_COUNT - out_count ? want : TABLE_COUNT - out_count;
    void *blocks[63];
    const unsigned got = want == 0 ? 0 : heap_take(&heap, class_index, want, blocks);
    assert_true(want == 0 || got >= 1);
    for (unsigned i = 0; i < got; i++) {
        remember(blocks[i], class_index);
    }
}

static void free_some_from_elsewhere(uint64_t *random_state) {
    unsigned count = (unsigned)(random_next(random_state) % 100);
    while (count-- > 0 && out_count > 0) {
        publish(forget((unsigned)(random_next(random_state) % out_count)).block);
    }
}

static void random_operations(unsigned steps) {
    uint64_t random_state = test_seed();
    for (unsigned n = 0; n < steps; n++) {
        const uint64_t dice = random_next(&random_state) % 100;
        // Waves, so that slabs fill up and empty.
        if (dice < (n / 100 % 2 == 0 ? 60u : 30u)) {
            take_some(&random_state);
        } else if (dice < 85) {
            put_some(&random_state);
        } else if (dice < 92) {
            free_some_from_elsewhere(&random_state);
            heap_collect(&heap);
        } else if (dice < 96) {
            heap_release_empty(&heap, dice % 2 != 0);
        } else {
            heap_purge_slabs(&heap, dice % 2 == 0);
        }
        check();
        if (n % 50 == 0) {
            check_totals();
        }
    }
    while (out_count > 0) {
        void *block = forget(out_count - 1).block;
        heap_put(&heap, &block, 1);
    }
    heap_release_empty(&heap, false);
    check();
    check_totals();
    struct arena_totals totals;
    arena_totals(&totals);
    assert_int_equal(totals.free_bytes, totals.mapped_bytes);
}

static void test_random_operations(void **state) {
    (void)state;
    start();
    random_operations(2500);
}

static void test_random_operations_in_random_order_with_guards(void **state) {
    (void)state;
    options.random_refill = 1;
    options.guard_gaps = 1;
    start();
    random_operations(1500);
}

static void test_random_operations_keeping_many_slabs(void **state) {
    (void)state;
    options.retain_slabs = 5;
    start();
    random_operations(1000);
}

// ---- What is taken ----

static void test_lowest_addresses_first(void **state) {
    (void)state;
    start();
    void *blocks[63];
    assert_int_equal(take(&heap, SIZE_CLASS_64, 63, blocks), 63);
    for (unsigned i = 1; i < 63; i++) {
        assert_ptr_equal(blocks[i], (char *)blocks[0] + (size_t)i * 64);
    }
    heap_put(&heap, blocks + 10, 5);
    void *again[63];
    assert_int_equal(take(&heap, SIZE_CLASS_64, 6, again), 6);
    assert_memory_equal(again, blocks + 10, 5 * sizeof(void *));
    assert_ptr_equal(again[5], (char *)blocks[0] + (size_t)63 * 64);
}

static void test_new_slab_for_the_first_block_only(void **state) {
    (void)state;
    start();
    const unsigned per_slab = size_classes[SIZE_CLASS_65536].block_count;
    void *blocks[63];
    assert_int_equal(take(&heap, SIZE_CLASS_65536, 2 * per_slab, blocks), per_slab);
    assert_int_equal(heap.bins[SIZE_CLASS_65536].slab_count, 1);
    assert_int_equal(take(&heap, SIZE_CLASS_65536, 1, blocks), 1);
    assert_int_equal(heap.bins[SIZE_CLASS_65536].slab_count, 2);
    // The one that has some serves, however few.
    assert_int_equal(take(&heap, SIZE_CLASS_65536, 63, blocks), per_slab - 1);
    assert_int_equal(heap.bins[SIZE_CLASS_65536].slab_count, 2);
}

// Where one has hardly any.
static void test_second_slab_serves_the_rest(void **state) {
    (void)state;
    start();
    void *blocks[2][63];
    const unsigned per_slab = size_classes[SIZE_CLASS_65536].block_count;
    take(&heap, SIZE_CLASS_65536, per_slab, blocks[0]);
    take(&heap, SIZE_CLASS_65536, per_slab, blocks[1]);
    heap_put(&heap, blocks[0], 3);
    heap_put(&heap, blocks[1], 3);
    void *again[63];
    assert_int_equal(take(&heap, SIZE_CLASS_65536, 63, again), 6);
    heap_put(&heap, blocks[0], 4);
    heap_put(&heap, blocks[1], 4);
    assert_int_equal(take(&heap, SIZE_CLASS_65536, 63, again), 4);
    check();
}

static void test_empty_slabs_are_kept_as_told(void **state) {
    (void)state;
    for (unsigned keep = 0; keep <= 3; keep++) {
        if (keep == 0) {
            start();
        }
        options.retain_slabs = keep;
        void *blocks[6 * 63];
        unsigned got = 0;
        while (got < 40) {
            got += take(&heap, SIZE_CLASS_65536, 40 - got, blocks + got);
        }
        assert_true(heap.bins[SIZE_CLASS_65536].slab_count >= 5);
        heap_put(&heap, blocks, got);
        assert_int_equal(heap.bins[SIZE_CLASS_65536].slab_count, keep);
        assert_int_equal(heap.bins[SIZE_CLASS_65536].empty_count, keep);
        check();
        heap_release_empty(&heap, false);
        assert_int_equal(heap.bins[SIZE_CLASS_65536].slab_count, 0);
    }
}

static void test_want_of_memory(void **state) {
    (void)state;
    start();
    void *blocks[63];
    take(&heap, SIZE_CLASS_65536, 5, blocks);
    fake_os_limit_bytes(1);
    // What is there is handed out, then nothing.
    unsigned got = 0;
    void *more[63];
    unsigned step;
    while ((step = heap_take(&heap, SIZE_CLASS_65536, 63, more)) != 0) {
        got += step;
        check();
    }
    assert_in_range(got, 3, 64);
    assert_int_equal(heap_take(&heap, SIZE_CLASS_65536, 1, more), 0);
    check();
    fake_os_limit_bytes(0);
    assert_true(heap_take(&heap, SIZE_CLASS_65536, 1, more) == 1);
    check();
}

// A refill that finds few blocks in one slab takes the rest from the next, and no more than there is room for.
static void test_refill_from_two_slabs_is_no_longer(void **state) {
    (void)state;
    start();
    void *first[63];
    void *second[63];
    void *blocks[32] = {NULL};
    const unsigned in_slab = size_classes[SIZE_CLASS_4096].block_count;
    assert_in_range(in_slab, 12, 63);
    assert_int_equal(heap_take(&heap, SIZE_CLASS_4096, in_slab, first), in_slab);
    assert_int_equal(heap_take(&heap, SIZE_CLASS_4096, in_slab - 2, second), in_slab - 2);
    heap_put(&heap, first, 10);
    assert_int_equal(heap_take(&heap, SIZE_CLASS_4096, 6, blocks), 6);
    assert_ptr_equal(slab_of(blocks[1]), slab_of(second[0]));
    assert_ptr_equal(slab_of(blocks[2]), slab_of(first[0]));
    assert_null(blocks[6]);
    check();
}

// Between all of them: no two begin alike.
static void test_random_refill_differs_between_heaps(void **state) {
    (void)state;
    enum { HEAPS = 8, BLOCKS = 63 };
    options.random_refill = 1;
    start();
    static struct heap heaps[HEAPS];
    static void *blocks[HEAPS][BLOCKS];
    for (unsigned i = 0; i < HEAPS; i++) {
        heap_init(&heaps[i], 10 + i);
        assert_int_equal(take(&heaps[i], SIZE_CLASS_64, BLOCKS, blocks[i]), BLOCKS);
    }
    for (unsigned pair = 0; pair < HEAPS * HEAPS; pair++) {
        void **const mine = blocks[pair / HEAPS];
        void **const others = blocks[pair % HEAPS];
        unsigned same = 0;
        for (unsigned i = 0; i < BLOCKS; i++) {
            same += (uintptr_t)mine[i] % PAGE_BYTES == (uintptr_t)others[i] % PAGE_BYTES;
        }
        assert_true(mine == others || same < 20);
    }
}

// ---- Frees by other threads ----

static uint64_t counted(const struct heap *from, enum counter counter) {
    return atomic_load_relaxed(&((struct heap *)(uintptr_t)from)->counters.value[counter]);
}

static void test_published_blocks_come_back(void **state) {
    (void)state;
    start();
    void *blocks[63];
    const unsigned got = take(&heap, SIZE_CLASS_256, 63, blocks);
    for (unsigned i = 0; i < got; i += 2) {
        publish(blocks[i]);
    }
    assert_true(heap_has_remote(&heap));
    assert_int_equal(heap_collect(&heap), 32);
    assert_false(heap_has_remote(&heap));
    assert_int_equal(counted(&heap, COUNTER_remote_collected), 32);
    assert_int_equal(heap_collect(&heap), 0);
    check();
    void *again[63];
    assert_int_equal(take(&heap, SIZE_CLASS_256, 32, again), 32);
    for (unsigned i = 0; i < 32; i++) {
        assert_ptr_equal(again[i], blocks[i * 2]);
    }
}

static void test_last_published_block_empties_the_slab(void **state) {
    (void)state;
    options.retain_slabs = 0;
    start();
    for (uint64_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        void *blocks[63];
        const unsigned got = take(&heap, i, 63, blocks);
        for (unsigned n = 0; n < got; n++) {
            publish(blocks[n]);
        }
        assert_int_equal(heap_collect(&heap), got);
        assert_int_equal(heap.bins[i].slab_count, 0);
        check();
    }
}

// An announcement that arrives when the slab is gone, or has another owner: what a freer does that is
// interrupted between setting its bits and pushing the slab.
static void announce_late(struct heap *to, struct run *slab, uint64_t summary) {
    assert_int_equal(atomic_or_acq_rel(&slab->remote_summary, summary), 0);
    atomic_store_relaxed(&slab->remote_next, NULL);
    assert_null(atomic_load_relaxed(&to->remote_slabs));
    atomic_store_relaxed(&to->remote_slabs, slab);
}

static void test_late_announcement_of_a_slab_that_is_gone(void **state) {
    (void)state;
    options.retain_slabs = 0;
    start();
    void *block = take_one(&heap, SIZE_CLASS_16);
    struct run *slab = slab_of(block);
    heap_put(&heap, &block, 1);
    assert_int_equal(heap.bins[SIZE_CLASS_16].slab_count, 0);
    announce_late(&heap, slab, UINT64_MAX);
    assert_int_equal(heap_collect(&heap), 0);
    check();
}

static void test_late_announcement_of_a_slab_with_fewer_words(void **state) {
    (void)state;
    options.retain_slabs = 0;
    start();
    void *block = take_one(&heap, SIZE_CLASS_16);  // 64 words
    struct run *slab = slab_of(block);
    heap_put(&heap, &block, 1);
    block = take_one(&heap, SIZE_CLASS_1024);  // one word, in the same place
    assert_ptr_equal(slab_of(block), slab);
    // Its neighbours' descriptors, behind its one word, are in use.
    for (uint64_t i = SIZE_CLASS_16; i <= SIZE_CLASS_512; i++) {
        take_one(&heap, i);
    }
    announce_late(&heap, slab, UINT64_MAX);
    assert_int_equal(heap_collect(&heap), 0);
    check();
    publish(block);
    assert_int_equal(heap_collect(&heap), 1);
    check();
}

static void test_late_announcement_is_handed_on(void **state) {
    (void)state;
    options.retain_slabs = 0;
    start();
    void *block = take_one(&heap, SIZE_CLASS_64);
    struct run *slab = slab_of(block);
    heap_put(&heap, &block, 1);
    void *blocks[63];
    take(&other, SIZE_CLASS_64, 63, blocks);
    assert_ptr_equal(slab_of(blocks[0]), slab);
    announce_late(&heap, slab, 1);
    // A free to the new owner meanwhile finds its word's summary bit set, and need not push.
    publish(blocks[5]);
    assert_false(heap_has_remote(&other));
    assert_int_equal(heap_collect(&heap), 0);
    assert_true(heap_has_remote(&other));
    assert_int_equal(heap_collect(&other), 1);
    assert_int_equal(heap_check(&other), 0);
    check();
}

// ---- Two heaps ----

static void test_blocks_of_another_heap_go_there(void **state) {
    (void)state;
    start();
    void *own[3], *others[3];
    take(&heap, SIZE_CLASS_64, 3, own);
    take(&other, SIZE_CLASS_64, 3, others);
    void *batch[] = {own[0], others[0], others[2], own[1], others[1], own[2]};
    heap_put(&heap, batch, 6);
    assert_int_equal(slab_of(own[0])->free_count, 1024);
    assert_int_equal(slab_of(others[0])->free_count, 1021);
    assert_int_equal(atomic_load_relaxed(&heap.counters.value[COUNTER_remote_blocks]), 3);
    assert_int_equal(heap_collect(&other), 3);
    assert_int_equal(slab_of(others[0])->free_count, 1024);
    check();
    assert_int_equal(heap_check(&other), 0);
}

static void test_slab_moves_to_another_heap(void **state) {
    (void)state;
    start();
    assert_false(heap_move_slab(&other, &heap, SIZE_CLASS_64));
    assert_false(heap_has_blocks(&heap, SIZE_CLASS_64));
    void *blocks[3];
    take(&other, SIZE_CLASS_64, 3, blocks);
    publish(blocks[2]);  // announced where nobody looks for it any more
    assert_false(heap_move_slab(&other, &heap, SIZE_CLASS_48));
    assert_true(heap_move_slab(&other, &heap, SIZE_CLASS_64));
    assert_true(heap_has_blocks(&heap, SIZE_CLASS_64));
    assert_false(heap_has_blocks(&other, SIZE_CLASS_64));
    assert_ptr_equal(atomic_load_relaxed(&slab_of(blocks[0])->heap), &heap);
    check();
    assert_int_equal(heap_check(&other), 0);
    // The former heap's owner frees one that it had cached, and hands the announcement on.
    heap_put(&other, &blocks[0], 1);
    assert_int_equal(heap_collect(&other), 0);
    assert_int_equal(heap_collect(&heap), 2);
    heap_put(&heap, &blocks[1], 1);
    assert_int_equal(slab_of(blocks[0])->free_count, 1024);
    assert_true(heap_move_slab(&heap, &other, SIZE_CLASS_64));  // an empty one as well
    check();
    assert_int_equal(heap_check(&other), 0);
}

static void test_slab_with_few_blocks_stays(void **state) {
    (void)state;
    start();
    void *blocks[1024];
    for (unsigned got = 0; got < 1024;) {
        got += take(&other, SIZE_CLASS_64, 1024 - got, blocks + got);
    }
    heap_put(&other, blocks, 127);
    assert_false(heap_move_slab(&other, &heap, SIZE_CLASS_64));
    heap_put(&other, blocks + 127, 1);
    assert_true(heap_move_slab(&other, &heap, SIZE_CLASS_64));
    check();
}

// Both heaps are locked meanwhile: one of very many slabs is looked for at both ends only.
static void test_slab_to_move_is_looked_for_at_the_ends(void **state) {
    (void)state;
    start();
    enum { SLABS = 50, BLOCKS = 8 };  // blocks of 8 KiB
    void *blocks[SLABS * BLOCKS];
    for (unsigned got = 0; got < SLABS * BLOCKS;) {
        got += take(&other, SIZE_CLASS_8192, SLABS * BLOCKS - got, blocks + got);
    }
    // Only full slabs are on no list: each gives one block back, an eighth, but for one in the middle none has a fair part.
    assert_int_equal(slab_of(blocks[0])->block_count, BLOCKS);
    for (unsigned i = 0; i < SLABS; i++) {
        heap_put(&other, &blocks[i * BLOCKS], 1);
        slab_of(blocks[i * BLOCKS])->free_count = i == SLABS / 2;
    }
    assert_false(heap_move_slab(&other, &heap, SIZE_CLASS_8192));
    slab_of(blocks[(SLABS - 1) * BLOCKS])->free_count = 1;
    assert_true(heap_move_slab(&other, &heap, SIZE_CLASS_8192));
    assert_ptr_equal(atomic_load_relaxed(&slab_of(blocks[(SLABS - 1) * BLOCKS])->heap), &heap);
}

static unsigned empty_slabs(void) {
    unsigned count = 0;
    for (uint64_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        count += heap.bins[i].empty_count;
    }
    return count;
}

static void test_empty_slabs_of_the_last_classes_stay(void **state) {
    (void)state;
    start();
    for (uint64_t round = 0; round < 3; round++) {
        for (uint64_t i = 0; i < SIZE_CLASS_COUNT; i++) {
            void *block = take_one(&heap, i);
            heap_put(&heap, &block, 1);
            assert_int_equal(heap.bins[i].empty_count, 1);
            assert_true(empty_slabs() <= RETAINED_CLASSES);
        }
        check();
    }
    assert_int_equal(empty_slabs(), RETAINED_CLASSES);
    // The same class again and again drives no other out.
    for (unsigned i = 0; i < 100; i++) {
        void *block = take_one(&heap, SIZE_CLASS_COUNT - 1);
        heap_put(&heap, &block, 1);
    }
    assert_int_equal(empty_slabs(), RETAINED_CLASSES);
}

static void test_published_twice(void **state) {
    (void)state;
    begin_misuse();
    void *block = take_one(&heap, SIZE_CLASS_64);
    take_one(&heap, SIZE_CLASS_64);
    publish(block);
    publish(block);
    assert_int_equal(misuses(), 1);
    assert_int_equal(heap_collect(&heap), 1);
    expect_report("double free: 0x");
}

static void test_published_when_held(void **state) {
    (void)state;
    begin_misuse();
    void *block = take_one(&heap, SIZE_CLASS_64);
    void *second = take_one(&heap, SIZE_CLASS_64);
    heap_put(&heap, &block, 1);
    struct run *slab = slab_of(block);
    heap_publish(slab, 0, bit(0) | bit(1));  // the second one is a good free
    (void)second;
    assert_int_equal(heap_collect(&heap), 1);
    expect_report("double free: 0x");
    assert_int_equal(misuses(), 1);
}

static void test_put_by_the_owner_after_publishing(void **state) {
    (void)state;
    begin_misuse();
    void *block = take_one(&heap, SIZE_CLASS_64);
    take_one(&heap, SIZE_CLASS_64);
    publish(block);
    heap_put(&heap, &block, 1);
    assert_int_equal(heap_collect(&heap), 0);
    expect_report("double free: 0x");
    assert_int_equal(misuses(), 1);
}

static void test_slab_destroyed_with_a_block_on_its_way_back(void **state) {
    (void)state;
    options.retain_slabs = 0;
    begin_misuse();
    void *block = take_one(&heap, SIZE_CLASS_64);
    publish(block);
    heap_put(&heap, &block, 1);  // the slab is empty and goes
    heap_collect(&heap);
    expect_report("double free: 0x");
    assert_int_equal(misuses(), 1);
    // Its place is as good as new.
    void *blocks[63];
    take(&heap, SIZE_CLASS_64, 63, blocks);
    heap_put(&heap, blocks, 63);
    check();
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_totals_do_not_look_at_slabs),
        cmocka_unit_test(test_random_operations),
        cmocka_unit_test(test_random_operations_in_random_order_with_guards),
        cmocka_unit_test(test_random_operations_keeping_many_slabs),
        cmocka_unit_test(test_lowest_addresses_first),
        cmocka_unit_test(test_new_slab_for_the_first_block_only),
        cmocka_unit_test(test_second_slab_serves_the_rest),
        cmocka_unit_test(test_empty_slabs_are_kept_as_told),
        cmocka_unit_test(test_want_of_memory),
        cmocka_unit_test(test_refill_from_two_slabs_is_no_longer),
        cmocka_unit_test(test_random_refill_differs_between_heaps),
        cmocka_unit_test(test_published_blocks_come_back),
        cmocka_unit_test(test_last_published_block_empties_the_slab),
        cmocka_unit_test(test_late_announcement_of_a_slab_that_is_gone),
        cmocka_unit_test(test_late_announcement_of_a_slab_with_fewer_words),
        cmocka_unit_test(test_late_announcement_is_handed_on),
        cmocka_unit_test(test_blocks_of_another_heap_go_there),
        cmocka_unit_test(test_slab_moves_to_another_heap),
        cmocka_unit_test(test_slab_with_few_blocks_stays),
        cmocka_unit_test(test_slab_to_move_is_looked_for_at_the_ends),
        cmocka_unit_test(test_empty_slabs_of_the_last_classes_stay),
        cmocka_unit_test(test_published_twice),
        cmocka_unit_test(test_published_when_held),
        cmocka_unit_test(test_put_by_the_owner_after_publishing),
        cmocka_unit_test(test_slab_destroyed_with_a_block_on_its_way_back),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
