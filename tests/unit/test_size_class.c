// The table of size classes and the arithmetic on it: every size, every class, every offset.
#include "isolate.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

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
            // What alloc_aligned_hit() builds on; a page with a header of 272 bytes is as good as never aligned.
            const uint64_t rounded =
                bytes == 0 ? smallest : size_class_index(align_up(bytes, alignment));
            assert_true(rounded == smallest || rounded == SIZE_CLASS_4368);
        }
    }
}

// ---- Tables of profiles

// Of every size that a class may have, and every slab that it may have.
static void test_block_index_is_exact_for_every_legal_class(void **state) {
    (void)state;
    unsigned wrong = 0;
    for (uint32_t bytes = BLOCK_ALIGN; bytes <= SMALL_BYTES_MAX; bytes += BLOCK_ALIGN) {
        const struct profile profile = {.class_count = 1, .classes = {{bytes, 0}}};
        struct size_class_table table;
        size_class_build(&table, &profile);
        const struct size_class *class = &table.rows[0];
        const uint32_t fit = PROFILE_SLAB_BLOCKS_MAX * bytes;
        const uint32_t most = PROFILE_SLAB_PAGES_MAX * (uint32_t)PAGE_BYTES;
        const uint32_t end = fit < most ? fit : most;
        assert_int_equal(class->block_bytes, bytes);
        assert_true(class->block_count >= 1 && class->block_count <= PROFILE_SLAB_BLOCKS_MAX);
        // An index is wrong nowhere if it is right on both sides of each block's start.
        for (uint32_t at = 0, index = 0; at < end; at += bytes, index++) {
            wrong += block_index(at, class->reciprocal) != index;
            wrong += block_index(at + bytes - 1, class->reciprocal) != index;
        }
    }
    assert_int_equal(wrong, 0);
}

// The reciprocal of another size must not pass for right.
static void test_a_wrong_reciprocal_is_noticed(void **state) {
    (void)state;
    const struct profile profile = {.class_count = 1, .classes = {{4096, 32}}};
    struct size_class_table table;
    size_class_build(&table, &profile);
    unsigned wrong = 0;
    for (uint32_t at = 0, index = 0; at < 32 * PAGE_BYTES; at += 4096, index++) {
        wrong += block_index(at, table.rows[0].reciprocal - 1) != index;
    }
    assert_true(wrong > 0);
}

// A legal table of `count` classes.
static void make_table(struct profile *profile, unsigned count, uint64_t *random) {
    uint32_t bytes = 0;
    for (unsigned i = 0; i < count; i++) {
        const uint32_t left = (SMALL_BYTES_MAX - bytes) / BLOCK_ALIGN - (count - 1 - i);
        bytes += BLOCK_ALIGN * (1 + (uint32_t)(random_next(random) % (left / 8 + 1)));
        bytes = i == count - 1 ? SMALL_BYTES_MAX : bytes;
        profile->classes[i] = (struct profile_class){bytes, 0};
    }
    profile->class_count = count;
}

static void require_serves(const struct size_class_table *table, size_t bytes) {
    const unsigned index = table->number_of_16[(bytes + 15) / 16] - 1u;
    assert_true(index < table->count);
    assert_true(table->rows[index].block_bytes >= bytes);
    assert_true(index == 0 || table->rows[index - 1].block_bytes < bytes);
}

static void test_random_tables_serve_every_size(void **state) {
    (void)state;
    static const size_t sizes[] = {1, 2, 3, SIZE_CLASS_COUNT - 1, SIZE_CLASS_COUNT};
    uint64_t random = 20261121;
    for (unsigned round = 0; round < 200; round++) {
        struct profile profile = {0};
        struct size_class_table table;
        const unsigned count = round < ARRAY_COUNT(sizes)
                                   ? (unsigned)sizes[round]
                                   : 1 + (unsigned)(random_next(&random) % SIZE_CLASS_COUNT);
        make_table(&profile, count, &random);
        size_class_build(&table, &profile);
        assert_int_equal(table.count, count);
        assert_int_equal(table.rows[SIZE_CLASS_COUNT - 1].block_bytes, SMALL_BYTES_MAX);
        for (size_t bytes = 0; bytes <= SMALL_BYTES_MAX; bytes += bytes < 4096 ? 1 : 7) {
            require_serves(&table, bytes);
        }
        require_serves(&table, SMALL_BYTES_MAX);
    }
}

// Run in a process of its own (isolate.c): the table in force is changed.
static void test_loaded_table_is_in_force_and_cannot_be_written(void **state) {
    (void)state;
    const struct profile profile = {.class_count = 4,
                                    .classes = {{48, 0}, {112, 2}, {20000, 3}, {65536, 0}}};
    assert_null(size_class_load(&profile));
    assert_int_equal(size_class_table.count, 4);
    assert_int_equal(size_class_index(1), 0);
    assert_int_equal(size_class_index(49), 1);
    assert_int_equal(size_classes[1].block_count, 2 * PAGE_BYTES / 112);
    assert_int_equal(size_class_index(113), 2);
    assert_int_equal(size_class_index(65536), 3);
    for (size_t alignment = 1; alignment <= SMALL_BYTES_MAX; alignment *= 2) {
        for (size_t bytes = 0; bytes <= SMALL_BYTES_MAX; bytes += 13) {
            const size_t block_bytes =
                size_classes[size_class_aligned(bytes, alignment)].block_bytes;
            assert_true(block_bytes >= bytes && block_bytes % alignment == 0);
        }
    }
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        *(volatile uint8_t *)&size_class_table.number_of_16[1] = 1;
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
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
        cmocka_unit_test(test_block_index_is_exact_for_every_legal_class),
        cmocka_unit_test(test_a_wrong_reciprocal_is_noticed),
        cmocka_unit_test(test_random_tables_serve_every_size),
        cmocka_unit_test(test_loaded_table_is_in_force_and_cannot_be_written),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
