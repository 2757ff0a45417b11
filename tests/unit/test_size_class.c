// The table of size classes and the arithmetic on it: every size, every class, every offset.
#include "isolate.h"

#include "base/bits.h"
#include "space/size_class.h"

static void test_table_rises_in_steps_of_16(void **state) {
    (void)state;
    assert_int_equal(size_classes[0].block_bytes, 16);
    assert_int_equal(size_classes[SIZE_CLASS_COUNT - 1].block_bytes, SMALL_BYTES_MAX);
    for (unsigned i = 0; i < SIZE_CLASS_COUNT; i++) {
        assert_int_equal(size_classes[i].block_bytes % BLOCK_ALIGN, 0);
        assert_true(i == 0 || size_classes[i].block_bytes > size_classes[i - 1].block_bytes);
    }
}

static void test_every_size_has_the_smallest_class(void **state) {
    (void)state;
    for (size_t bytes = 0; bytes <= SMALL_BYTES_MAX; bytes++) {
        unsigned smallest = 0;
        while (size_classes[smallest].block_bytes < bytes) {
            smallest++;
        }
        assert_int_equal(size_class_index(bytes), smallest);
    }
}

static void test_loss_to_rounding(void **state) {
    (void)state;
    for (size_t bytes = 128; bytes <= SMALL_BYTES_MAX; bytes++) {
        const size_t block_bytes = size_classes[size_class_index(bytes)].block_bytes;
        const size_t percent_max = bytes <= 1024 ? 12 : 20;
        assert_true((block_bytes - bytes) * 100 <= percent_max * block_bytes);
    }
}

static void test_every_power_of_two_is_a_class(void **state) {
    (void)state;
    for (size_t bytes = BLOCK_ALIGN; bytes <= SMALL_BYTES_MAX; bytes *= 2) {
        assert_int_equal(size_classes[size_class_index(bytes)].block_bytes, bytes);
    }
}

static void test_slabs(void **state) {
    (void)state;
    for (unsigned i = 0; i < SIZE_CLASS_COUNT; i++) {
        const struct size_class *class = &size_classes[i];
        const size_t slab_bytes = class->slab_pages * PAGE_BYTES;
        assert_int_equal(class->block_count, slab_bytes / class->block_bytes);
        assert_true(class->block_count >= 8);
        // One summary word of 64 bits has a bit for each word of 64 blocks.
        assert_true(class->block_count <= 64 * 64);
        // At most a tenth of a slab is tail.
        assert_true((slab_bytes - class->block_count * (size_t) class->block_bytes) * 10 <=
                    slab_bytes);
    }
}

static void test_block_index_is_exact_at_every_offset(void **state) {
    (void)state;
    for (unsigned i = 0; i < SIZE_CLASS_COUNT; i++) {
        const struct size_class *class = &size_classes[i];
        const uint32_t slab_bytes = (uint32_t)(class->slab_pages * PAGE_BYTES);
        unsigned wrong = 0;
        for (uint32_t offset = 0; offset < slab_bytes; offset++) {
            wrong += block_index(offset, class->reciprocal) != offset / class->block_bytes;
        }
        assert_int_equal(wrong, 0);
    }
}

static void test_aligned_class_is_the_smallest(void **state) {
    (void)state;
    for (size_t alignment = 1; alignment <= SMALL_BYTES_MAX; alignment *= 2) {
        unsigned smallest = 0;
        for (size_t bytes = 0; bytes <= SMALL_BYTES_MAX; bytes++) {
            while (size_classes[smallest].block_bytes < bytes ||
                   size_classes[smallest].block_bytes % alignment != 0) {
                smallest++;
            }
            assert_true(smallest < SIZE_CLASS_COUNT);
            assert_int_equal(size_class_aligned(bytes, alignment), smallest);
        }
    }
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_rises_in_steps_of_16),
        cmocka_unit_test(test_every_size_has_the_smallest_class),
        cmocka_unit_test(test_loss_to_rounding),
        cmocka_unit_test(test_every_power_of_two_is_a_class),
        cmocka_unit_test(test_slabs),
        cmocka_unit_test(test_block_index_is_exact_at_every_offset),
        cmocka_unit_test(test_aligned_class_is_the_smallest),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
