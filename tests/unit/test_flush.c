// What a flush puts back: blocks beside each other, in one word, and scattered over slabs. What is among them that should not be is told,
// and all the others go home.
#include "two_heaps.h"

#include "base/bits.h"
#include "heap/slab.h"

// ---- Misuse, reported and ignored ----

static void test_block_put_twice(void **state) {
    (void)state;
    begin_misuse();
    void *block = take_one(&heap, SIZE_CLASS_64);
    take_one(&heap, SIZE_CLASS_64);
    heap_put(&heap, &block, 1);
    heap_put(&heap, &block, 1);
    expect_report("double free: 0x");
    assert_int_equal(misuses(), 1);
}

static void test_block_twice_in_one_batch(void **state) {
    (void)state;
    begin_misuse();
    void *blocks[4];
    take(&heap, SIZE_CLASS_64, 4, blocks);
    void *batch[] = {blocks[0], blocks[1], blocks[0], blocks[2], blocks[1]};
    heap_put(&heap, batch, 5);
    expect_report("is the start of a 64-byte block (class 3), free");
    assert_int_equal(misuses(), 2);
    assert_int_equal(slab_of(blocks[0])->free_count, 1023);
}

// Blocks of one word are looked up together: each batch has one odd one, twice or amid a block, alone or beside others.
static void test_an_odd_one_among_neighbours(void **state) {
    (void)state;
    begin_misuse();
    char *block[16];
    take(&heap, SIZE_CLASS_64, 16, (void **)block);
    void *batches[][10] = {
        {block[0], block[2], block[4], block[2], block[6]},
        {block[0], block[3], block[7], block[9] + 16, block[11]},
        // Some beside each other first, upward or downward, then one of them, or some.
        {block[0], block[2], block[3], block[4], block[5], block[4]},
        {block[0], block[9], block[8], block[7], block[6], block[8]},
        {block[0], block[2], block[3], block[4], block[5], block[8], block[7], block[6], block[5]},
        {block[0], block[8], block[7], block[6], block[5], block[4], block[5], block[6], block[7]},
        // Beside each other, and none of them a block.
        {block[0], block[2] + 16, block[3] + 16, block[4] + 16, block[5] + 16},
        {block[0], block[9] + 16, block[8] + 16, block[7] + 16, block[6] + 16},
        {block[0] + 16, block[1] + 16, block[2] + 16, block[3] + 16},
    };
    const unsigned good[] = {4, 4, 5, 5, 8, 6, 1, 1, 0};
    unsigned odd = 0;
    for (unsigned i = 0; i < ARRAY_COUNT(batches); i++) {
        unsigned count = 0;
        while (count < 10 && batches[i][count] != NULL) {
            count++;
        }
        heap_put(&heap, batches[i], count);
        odd += count - good[i];
        assert_int_equal(misuses(), odd);
        assert_int_equal(heap.bins[SIZE_CLASS_64].used_blocks, 16 - good[i]);
        check();
        void *again[16];
        if (good[i] != 0) {
            take(&heap, SIZE_CLASS_64, good[i], again);
        }
    }
}

// Where words of another heap wait: the second stretch of the first word joins it.
static void test_odd_ones_among_blocks_of_another_heap(void **state) {
    (void)state;
    begin_misuse();
    char *foreign[16];
    take(&other, SIZE_CLASS_64, 16, (void **)foreign);
    void *own = take_one(&heap, SIZE_CLASS_64);
    void *batch[] = {foreign[0], foreign[2], own,        foreign[4],      foreign[2],
                     foreign[5], foreign[6], foreign[7], foreign[8] + 16, foreign[9]};
    heap_put(&heap, batch, ARRAY_COUNT(batch));
    assert_int_equal(misuses(), 2);
    assert_int_equal(heap_collect(&other), 7);
    expect_report("double free: 0x");
    assert_int_equal(heap.bins[SIZE_CLASS_64].used_blocks, 0);
    assert_int_equal(other.bins[SIZE_CLASS_64].used_blocks, 16 - 7);
}

static void test_double_free_of_the_slabs_last_block(void **state) {
    (void)state;
    options.retain_slabs = 0;
    begin_misuse();
    void *block = take_one(&heap, SIZE_CLASS_64);
    void *batch[] = {block, block};
    heap_put(&heap, batch, 2);
    heap_put(&heap, batch, 1);
    expect_report("double free: 0x");
    assert_int_equal(misuses(), 2);
}

static void test_interior_and_foreign_pointers(void **state) {
    (void)state;
    begin_misuse();
    char *block = take_one(&heap, SIZE_CLASS_64);
    char *of_other = (char *)take_one(&other, SIZE_CLASS_64) + 16;
    char *tail = (char *)slab_of(take_one(&heap, SIZE_CLASS_48))->start + PAGE_BYTES - 16;
    int local = 0;
    void *batch[] = {block + 16, block + 1, of_other, tail, &local, (void *)16, block};
    heap_put(&heap, batch, 7);
    expect_report("lies 16 bytes inside the 64-byte block (class 3) at 0x");
    assert_int_equal(misuses(), 6);
    // The one good pointer among them went back.
    assert_int_equal(slab_of(block)->free_count, 1024);
}

// ---- Blocks in no order ----

enum { SCATTERED_SLABS = 6, SCATTERED_MOST = SCATTERED_SLABS * 1365 };

static void *scattered[SCATTERED_MOST];

// All blocks of several slabs, in random order. Returns how many.
static unsigned take_in_no_order(uint64_t class_index, uint64_t *random_state) {
    const unsigned count = SCATTERED_SLABS * size_classes[class_index].block_count;
    for (unsigned got = 0; got < count;) {
        got += heap_take(&heap, class_index, count - got < 63 ? count - got : 63, scattered + got);
    }
    for (unsigned i = count; i-- > 1;) {
        const unsigned place = (unsigned)(random_next(random_state) % (i + 1));
        void *const block = scattered[i];
        scattered[i] = scattered[place];
        scattered[place] = block;
    }
    return count;
}

static void test_blocks_in_no_order(void **state) {
    (void)state;
    start();
    uint64_t random_state = test_seed();
    const uint64_t classes[] = {SIZE_CLASS_48, SIZE_CLASS_64, SIZE_CLASS_1024,
                                size_class_index(4096), size_class_index(64 * KIB)};
    for (unsigned c = 0; c < ARRAY_COUNT(classes); c++) {
        const unsigned count = take_in_no_order(classes[c], &random_state);
        struct bin *bin = &heap.bins[classes[c]];
        for (unsigned put = 0; put < count;) {
            const unsigned step = 1 + (unsigned)(random_next(&random_state) % 63);
            const unsigned n = step < count - put ? step : count - put;
            heap_put(&heap, scattered + put, n);
            put += n;
            check();
            assert_int_equal(bin->used_blocks, count - put);
        }
    }
    assert_int_equal(heap.used_bytes, 0);
}

// Each lies in another slab than the one before it.
static void test_odd_ones_among_scattered_blocks(void **state) {
    (void)state;
    begin_misuse();
    enum { EACH = SCATTERED_MOST / SCATTERED_SLABS };
    for (unsigned i = 0; i < SCATTERED_MOST; i++) {
        scattered[i] = take_one(&heap, SIZE_CLASS_48);
    }
    void **const a = scattered, **const b = a + EACH, **const c = b + EACH, **const d = c + EACH;
    assert_ptr_not_equal(slab_of(a[0]), slab_of(b[0]));
    void *const of_other = take_one(&other, SIZE_CLASS_48);
    void *const of_another_class = take_one(&heap, SIZE_CLASS_64);
    char *const tail = (char *)slab_of(d[0])->start + PAGE_BYTES - 16;
    int local = 0;
    void *batch[] = {
        a[0],
        b[0],
        c[0],
        d[0],
        a[9],
        b[9],
        c[9],
        a[0],  // twice
        b[300],
        (char *)c[300] + 16,
        d[300],
        a[300],
        of_other,
        b[600],
        of_another_class,
        c[600],
        tail,
        d[600],
        &local,
        a[600],
        c[9],  // twice
        b[900],
        c[900],
    };
    heap_put(&heap, batch, ARRAY_COUNT(batch));
    expect_report("double free: 0x");
    assert_int_equal(misuses(), 5);
    assert_int_equal(heap.bins[SIZE_CLASS_48].used_blocks, SCATTERED_MOST - 16);
    assert_int_equal(heap.bins[SIZE_CLASS_64].used_blocks, 0);
    assert_int_equal(heap_collect(&other), 1);
    check();
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_block_put_twice),
        cmocka_unit_test(test_block_twice_in_one_batch),
        cmocka_unit_test(test_an_odd_one_among_neighbours),
        cmocka_unit_test(test_odd_ones_among_blocks_of_another_heap),
        cmocka_unit_test(test_double_free_of_the_slabs_last_block),
        cmocka_unit_test(test_interior_and_foreign_pointers),
        cmocka_unit_test(test_blocks_in_no_order),
        cmocka_unit_test(test_odd_ones_among_scattered_blocks),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
