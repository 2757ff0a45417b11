// Spare slabs: a heap keeps what it would otherwise take back from others by way of the arena, for whatever class needs one,
// and gives up what it does without (heap/bins.c).
#include "isolate.h"

#include <string.h>

#include "base/bits.h"
#include "config/options.h"
#include "fake_os.h"
#include "found_slab.h"
#include "heap/heap.h"
#include "heap/heap_check.h"
#include "heap/heap_purge.h"
#include "heap/slab.h"
#include "space/metadata.h"
#include "space/page_map.h"

enum { SLABS = 10, BLOCKS_MAX = 16 * 1024 };

static struct heap heap, other;

static void start(void) {
    page_map_init();
    heap_init(&heap, 2);
    heap_init(&other, 3);
}

static void check(void) {
    assert_int_equal(heap_check(&heap), 0);
    assert_int_equal(heap_check(&other), 0);
    assert_int_equal(arena_check(), 0);
}

static uint64_t counted(const struct heap *of, enum counter counter) {
    return atomic_load_relaxed(&((struct heap *)(uintptr_t)of)->counters.value[counter]);
}

// Takes all blocks of so many slabs and puts them back, as a thread does that allocates in bulk.
static void fill_and_empty(struct heap *by, uint64_t class_index, unsigned slabs) {
    static void *blocks[BLOCKS_MAX];
    const unsigned wanted = slabs * size_classes[class_index].block_count;
    assert_true(wanted <= BLOCKS_MAX);
    unsigned got = 0;
    while (got < wanted) {
        const unsigned step =
            heap_take(by, class_index, (unsigned)least_u64(wanted - got, 63), blocks + got);
        assert_int_not_equal(step, 0);
        got += step;
    }
    for (unsigned put = 0; put < got; put += 63) {
        heap_put(by, blocks + put, (unsigned)least_u64(got - put, 63));
    }
}

static uint32_t slab_count(uint64_t class_index) {
    return heap.bins[class_index].slab_count;
}

// Heap and other take turns with the same runs until the heap has learned to keep its own.
static void learn(uint64_t class_index) {
    fill_and_empty(&heap, class_index, SLABS);
    fill_and_empty(&other, class_index, SLABS);
    fill_and_empty(&heap, class_index, SLABS);
    fill_and_empty(&heap, class_index, SLABS);
}

static void test_none_without_others(void **state) {
    (void)state;
    start();
    for (unsigned i = 0; i < 3; i++) {
        fill_and_empty(&heap, SIZE_CLASS_64, SLABS);
        assert_int_equal(slab_count(SIZE_CLASS_64), options.retain_slabs);
        assert_int_equal(heap.spares.most, 0);
        check();
    }
}

static void test_what_went_to_others_stays(void **state) {
    (void)state;
    start();
    learn(SIZE_CLASS_64);
    assert_true(heap.spares.most >= SLABS - 2);
    assert_true(slab_count(SIZE_CLASS_64) >= SLABS - 2);
    const uint64_t created = counted(&heap, COUNTER_slabs_created);
    fill_and_empty(&heap, SIZE_CLASS_64, SLABS - 2);
    assert_int_equal(counted(&heap, COUNTER_slabs_created), created);
    check();
}

static void test_none_where_no_slab_is_retained(void **state) {
    (void)state;
    options.retain_slabs = 0;
    start();
    learn(SIZE_CLASS_64);
    assert_int_equal(heap.spares.most, 0);
    assert_int_equal(slab_count(SIZE_CLASS_64), 0);
    check();
}

static void test_none_beyond_the_bound_of_free_memory(void **state) {
    (void)state;
    start();
    options.excess_bytes = 8 * PAGE_BYTES;
    learn(SIZE_CLASS_64);
    // Half of excess_bytes in slabs, and what each class keeps.
    assert_in_range(slab_count(SIZE_CLASS_64), 1, 4 + options.retain_slabs);
    check();
}

static void test_another_class_uses_them(void **state) {
    (void)state;
    start();
    learn(SIZE_CLASS_64);
    const uint64_t created = counted(&heap, COUNTER_slabs_created);
    const uint32_t before = slab_count(SIZE_CLASS_64);
    assert_false(heap_has_blocks(&heap, SIZE_CLASS_1024));
    assert_true(heap_use_spare(&heap, SIZE_CLASS_1024));
    assert_int_equal(slab_count(SIZE_CLASS_64), before - 1);
    assert_int_equal(slab_count(SIZE_CLASS_1024), 1);
    assert_int_equal(counted(&heap, COUNTER_slabs_remade), 1);
    check();
    void *blocks[63];
    const unsigned got = heap_take(&heap, SIZE_CLASS_1024, 63, blocks);
    assert_int_equal(got, size_classes[SIZE_CLASS_1024].block_count < 63
                              ? size_classes[SIZE_CLASS_1024].block_count
                              : 63);
    assert_int_equal(counted(&heap, COUNTER_slabs_created), created);
    for (unsigned i = 0; i < got; i++) {
        memset(blocks[i], 0x5a, 1024);
        assert_int_equal(slab_of(blocks[i])->class_index, SIZE_CLASS_1024);
    }
    heap_put(&heap, blocks, got);
    check();
}

// A block freed by another thread and by this one is told of before its slab is made into another, where nothing would be
// left of it.
static void test_a_double_free_in_one_is_told_of(void **state) {
    (void)state;
    options.abort = 0;
    start();
    learn(SIZE_CLASS_64);
    void *block;
    assert_int_equal(heap_take(&heap, SIZE_CLASS_64, 1, &block), 1);
    struct run *slab = slab_of(block);
    assert_null(heap_publish_block(slab, block));
    heap_put(&heap, &block, 1);
    stderr_begin();
    assert_true(heap_use_spare(&heap, SIZE_CLASS_1024));
    assert_non_null(strstr(stderr_end(), "double free: 0x"));
    assert_int_equal(slab->class_index, SIZE_CLASS_1024);
    heap_collect(&heap);
    check();
}

static void test_what_a_class_retains_is_not_spare(void **state) {
    (void)state;
    start();
    learn(SIZE_CLASS_64);
    // Of blocks of 1,024 bytes one slab after the other is filled.
    void *blocks[64];
    for (unsigned i = 0; i < 2 * SLABS; i++) {
        if (!heap_use_spare(&heap, SIZE_CLASS_1024)) {
            break;
        }
        while (heap_has_blocks(&heap, SIZE_CLASS_1024)) {
            heap_take(&heap, SIZE_CLASS_1024, 63, blocks);
        }
        check();
    }
    assert_int_equal(slab_count(SIZE_CLASS_64), options.retain_slabs);
}

static void test_slabs_of_other_lengths_do_not(void **state) {
    (void)state;
    start();
    learn(SIZE_CLASS_64);
    assert_false(heap_use_spare(&heap, SIZE_CLASS_65536));
    learn(SIZE_CLASS_65536);
    assert_int_equal(slab_count(SIZE_CLASS_65536), options.retain_slabs);
    check();
}

static void test_given_up_when_not_needed(void **state) {
    (void)state;
    start();
    learn(SIZE_CLASS_64);
    // In this interval they were all in use at some time.
    heap_decay_spares(&heap);
    const uint32_t kept = slab_count(SIZE_CLASS_64);
    assert_true(kept > options.retain_slabs);
    // In this one a part was.
    fill_and_empty(&heap, SIZE_CLASS_64, 4);
    heap_decay_spares(&heap);
    assert_in_range(slab_count(SIZE_CLASS_64), 4, 4 + options.retain_slabs);
    check();
    heap_decay_spares(&heap);
    assert_int_equal(slab_count(SIZE_CLASS_64), options.retain_slabs);
    assert_int_equal(heap.spares.most, 0);
    check();
}

// Of more classes than a heap keeps slabs of in any case.
static void test_a_release_takes_them_along(void **state) {
    (void)state;
    start();
    learn(SIZE_CLASS_64);
    for (uint64_t i = 10; i < 20; i++) {
        fill_and_empty(&heap, i, 1);
    }
    assert_true(heap.spares.count > RETAINED_CLASSES);
    heap_release_empty(&heap, true);
    assert_int_equal(heap.spares.count, RETAINED_CLASSES * options.retain_slabs);
    assert_int_equal(heap.spares.most, 0);
    check();
}

static void test_what_classes_keep_is_not_idle(void **state) {
    (void)state;
    start();
    learn(SIZE_CLASS_64);
    for (uint64_t i = 10; i < 13; i++) {
        fill_and_empty(&heap, i, 1);
    }
    heap_decay_spares(&heap);
    const uint32_t most = heap.spares.most;
    // Used to the last in each interval, while three other classes keep a slab each.
    for (unsigned i = 0; i < 4; i++) {
        fill_and_empty(&heap, SIZE_CLASS_64, SLABS + 2);
        heap_decay_spares(&heap);
        assert_true(heap.spares.most >= most);
    }
    check();
}

static void test_none_once_the_option_is_0(void **state) {
    (void)state;
    start();
    learn(SIZE_CLASS_64);
    options.retain_slabs = 0;
    fill_and_empty(&heap, SIZE_CLASS_64, SLABS);
    heap_decay_spares(&heap);
    assert_int_equal(slab_count(SIZE_CLASS_64), 0);
    check();
}

// Their memory has gone, and is not counted as free blocks that have some.
static void test_a_purged_one_is_clean(void **state) {
    (void)state;
    start();
    learn(SIZE_CLASS_64);
    heap_purge_slabs(&heap, true);
    assert_int_equal(heap.loose_bytes, 0);
    assert_true(heap_use_spare(&heap, SIZE_CLASS_1024));
    assert_int_equal(heap.loose_bytes, 0);
    check();
}

static void test_want_of_memory_for_the_bitmaps(void **state) {
    (void)state;
    start();
    learn(SIZE_CLASS_1024);
    const uint32_t before = slab_count(SIZE_CLASS_1024);
    fake_os_fail(OS_MMAP, 1, true);
    while (metadata_alloc(64) != NULL) {
    }
    // A slab of 16-byte blocks has larger bitmaps than were free: the run goes to the arena.
    assert_false(heap_use_spare(&heap, SIZE_CLASS_16));
    assert_int_equal(slab_count(SIZE_CLASS_1024), before - 1);
    uint64_t slabs = 0;
    for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        slabs += slab_count(i);
    }
    assert_int_equal(counted(&heap, COUNTER_slabs_created) - counted(&heap, COUNTER_slabs_released),
                     slabs);
    check();
    fake_os_mend();
    assert_true(heap_use_spare(&heap, SIZE_CLASS_16));
    check();
}

// Of a class that is none of those that emptied last any more, however many it kept.
static void test_what_a_class_kept_goes(void **state) {
    (void)state;
    options.retain_slabs = 5;
    start();
    fill_and_empty(&heap, SIZE_CLASS_64, 5);
    assert_int_equal(slab_count(SIZE_CLASS_64), 5);
    for (uint64_t i = 10; i < 10 + RETAINED_CLASSES; i++) {
        fill_and_empty(&heap, i, 1);
    }
    heap_decay_spares(&heap);
    assert_int_equal(slab_count(SIZE_CLASS_64), 0);
    assert_int_equal(heap.spares.count, RETAINED_CLASSES);
    check();
}

// Of many empty slabs that were left for want of budget a decay takes a part, and the next slow paths go on.
static void test_a_decay_gives_back_a_part(void **state) {
    (void)state;
    enum { LEFT = 100, PART = HEAP_BUDGET_CALL / PAGE_BYTES };
    start();
    for (unsigned most = 0; most < 2; most++) {
        heap.spares.most = most;
        heap.overfull = NULL;
        heap.budget_bytes = 0;
        fill_and_empty(&heap, SIZE_CLASS_4096, LEFT);
        heap.budget_bytes = HEAP_BUDGET_ALL;
        assert_int_equal(slab_count(SIZE_CLASS_4096), LEFT);
        heap_decay_spares(&heap);
        assert_int_equal(slab_count(SIZE_CLASS_4096), LEFT - PART);
        assert_ptr_equal(heap.overfull, &heap);
        assert_int_equal(heap.budget_bytes, HEAP_BUDGET_ALL);
        check();
        heap_release_empty(&heap, false);
    }
}

// ---- Random operations of two heaps, many of whose slabs empty ----

enum { TABLE_COUNT = 4000, STEPS = 4000, STEPS_MOST = 8 * STEPS };

struct out {
    void *block;
    struct heap *heap;
};

static struct out table[TABLE_COUNT];
static unsigned out_count;

static void take_some(struct heap *by, uint64_t *random_state) {
    const uint64_t classes[] = {SIZE_CLASS_16, SIZE_CLASS_64, SIZE_CLASS_1024, SIZE_CLASS_4096,
                                SIZE_CLASS_65536};
    const uint64_t class_index = classes[random_next(random_state) % ARRAY_COUNT(classes)];
    if (!heap_has_blocks(by, class_index) && random_next(random_state) % 2 == 0) {
        heap_use_spare(by, class_index);
    }
    void *blocks[63];
    const unsigned got = heap_take(by, class_index, 1 + random_next(random_state) % 63, blocks);
    for (unsigned i = 0; i < got; i++) {
        assert_true(out_count < TABLE_COUNT);
        table[out_count++] = (struct out){blocks[i], by};
    }
}

// One in `of`, or all with 1.
static void put_some_of(struct heap *by, unsigned of, uint64_t *random_state) {
    unsigned kept = 0;
    for (unsigned i = 0; i < out_count; i++) {
        if (table[i].heap == by && random_next(random_state) % of == 0) {
            // A block of a slab that has moved goes to the heap that has it now.
            heap_put(by, &table[i].block, 1);
        } else {
            table[kept++] = table[i];
        }
    }
    out_count = kept;
}

static uint64_t remade_count(void) {
    return counted(&heap, COUNTER_slabs_remade) + counted(&other, COUNTER_slabs_remade);
}

// More steps where chance had no slab remade so far.
static void test_random_operations(void **state) {
    (void)state;
    start();
    uint64_t random_state = test_seed() | 1;
    uint32_t most = 0;
    for (unsigned step = 0;
         step < STEPS || (step < STEPS_MOST && (most == 0 || remade_count() == 0)); step++) {
        struct heap *by = random_next(&random_state) % 2 == 0 ? &heap : &other;
        const unsigned what = random_next(&random_state) % 64;
        if (out_count + 63 > TABLE_COUNT || what < 4) {
            put_some_of(by, 1, &random_state);
            if (out_count + 63 > TABLE_COUNT) {
                put_some_of(by == &heap ? &other : &heap, 1, &random_state);
            }
        } else if (what == 4) {
            heap_decay_spares(by);
        } else if (what == 5) {
            heap_release_empty(by, random_next(&random_state) % 2 != 0);
        } else if (what == 7) {
            heap_move_slab(by, by == &heap ? &other : &heap, SIZE_CLASS_64);
        } else if (what == 8) {
            by->budget_bytes = random_next(&random_state) % (8 * PAGE_BYTES);
            heap_collect(by);
            heap_release_empty(by, false);
            by->budget_bytes = HEAP_BUDGET_ALL;
        } else if (what == 6) {
            put_some_of(by, 2, &random_state);
            check();
        } else {
            take_some(by, &random_state);
        }
        most = (uint32_t)greatest_u64(most, by->spares.most);
        if (step % 16 == 0) {
            check();
        }
    }
    assert_int_not_equal(most, 0);
    assert_int_not_equal(remade_count(), 0);
    put_some_of(&heap, 1, &random_state);
    put_some_of(&other, 1, &random_state);
    // The announcement of a slab that has moved is handed on, perhaps to the first one.
    heap_collect(&heap);
    heap_collect(&other);
    heap_collect(&heap);
    heap_release_empty(&heap, false);
    heap_release_empty(&other, false);
    check();
    struct arena_totals totals;
    arena_totals(&totals);
    assert_int_equal(totals.mapped_bytes, totals.free_bytes);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_none_without_others),
        cmocka_unit_test(test_what_went_to_others_stays),
        cmocka_unit_test(test_none_where_no_slab_is_retained),
        cmocka_unit_test(test_none_beyond_the_bound_of_free_memory),
        cmocka_unit_test(test_another_class_uses_them),
        cmocka_unit_test(test_a_double_free_in_one_is_told_of),
        cmocka_unit_test(test_what_a_class_retains_is_not_spare),
        cmocka_unit_test(test_slabs_of_other_lengths_do_not),
        cmocka_unit_test(test_given_up_when_not_needed),
        cmocka_unit_test(test_a_release_takes_them_along),
        cmocka_unit_test(test_what_classes_keep_is_not_idle),
        cmocka_unit_test(test_none_once_the_option_is_0),
        cmocka_unit_test(test_a_purged_one_is_clean),
        cmocka_unit_test(test_want_of_memory_for_the_bitmaps),
        cmocka_unit_test(test_what_a_class_kept_goes),
        cmocka_unit_test(test_a_decay_gives_back_a_part),
        cmocka_unit_test(test_random_operations),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
