// What zeroed huge blocks are made of: clean pages until the program is seen to touch them, then cleared ones.
#include "isolate.h"

#include <string.h>

#include "base/bits.h"
#include "config/options.h"
#include "fake_os.h"
#include "heap/huge.h"
#include "heap/zeroing.h"
#include "space/page_map.h"

#define BLOCK_BYTES (8 * MIB)

static void check_zero(const char *block, size_t bytes) {
    for (size_t at = 0; at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, block + at, sizeof word);
        if (word != 0) {
            fail_msg("byte %zu of %zu", at, bytes);
        }
    }
}

static char *make_zeroed(size_t bytes) {
    char *block = huge_alloc(bytes, PAGE_BYTES, true);
    assert_non_null(block);
    assert_int_equal(huge_check(), 0);
    return block;
}

static void drop(char *block) {
    assert_true(huge_free(huge_find((uintptr_t)block), (uintptr_t)block));
    assert_int_equal(huge_check(), 0);
}

// As a program that fills what it takes, and one that uses the beginning alone.
static void use_densely(void) {
    char *block = make_zeroed(BLOCK_BYTES);
    memset(block, 1, BLOCK_BYTES);
    drop(block);
}

static void use_sparsely(void) {
    char *block = make_zeroed(BLOCK_BYTES);
    memset(block, 1, 4096);
    drop(block);
}

static size_t resident_bytes(char *block) {
    return os_resident_bytes(block, BLOCK_BYTES);
}

static void test_dense_blocks_are_cleared(void **state) {
    (void)state;
    page_map_init();
    use_densely();
    // The first one shows what becomes of its middle.
    char *probe = make_zeroed(BLOCK_BYTES);
    assert_int_equal(resident_bytes(probe), BLOCK_BYTES - BLOCK_BYTES / 64);
    check_zero(probe, BLOCK_BYTES);
    memset(probe, 1, BLOCK_BYTES);
    drop(probe);
    for (unsigned i = 0; i < 7; i++) {
        char *block = make_zeroed(BLOCK_BYTES);
        assert_int_equal(resident_bytes(block), BLOCK_BYTES);
        check_zero(block, BLOCK_BYTES);
        memset(block, 1, BLOCK_BYTES);
        drop(block);
    }
    probe = make_zeroed(BLOCK_BYTES);
    assert_int_equal(resident_bytes(probe), BLOCK_BYTES - BLOCK_BYTES / 64);
    drop(probe);
}

static void test_sparse_blocks_stay_without_memory(void **state) {
    (void)state;
    page_map_init();
    use_sparsely();
    // What another block left resident goes as well.
    char *other = huge_alloc(BLOCK_BYTES, PAGE_BYTES, false);
    memset(other, 1, BLOCK_BYTES);
    drop(other);
    for (unsigned i = 0; i < 20; i++) {
        char *block = make_zeroed(BLOCK_BYTES);
        assert_int_equal(resident_bytes(block), 0);
        memset(block, 1, 4096);
        drop(block);
    }
}

static void test_a_program_that_changes_is_noticed(void **state) {
    (void)state;
    page_map_init();
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < 10; i++) {
            use_densely();
        }
        assert_true(huge_table_state.clears);
        for (unsigned i = 0; i < 10; i++) {
            use_sparsely();
        }
        assert_false(huge_table_state.clears);
        char *block = make_zeroed(BLOCK_BYTES);
        assert_int_equal(resident_bytes(block), 0);
        drop(block);
    }
}

static void test_resized_blocks_say_nothing(void **state) {
    (void)state;
    page_map_init();
    use_densely();
    char *block = make_zeroed(BLOCK_BYTES);
    assert_true(huge_resize(huge_find((uintptr_t)block), BLOCK_BYTES - MIB));
    assert_int_equal(zeroing_use_of(huge_find((uintptr_t)block)), ZEROING_UNKNOWN);
    drop(block);
    assert_true(huge_table_state.clears);
    // Nor do blocks of malloc in the same mapping.
    block = huge_alloc(BLOCK_BYTES - MIB, PAGE_BYTES, false);
    assert_int_equal(zeroing_use_of(huge_find((uintptr_t)block)), ZEROING_UNKNOWN);
    drop(block);
}

// Blocks of all lengths, made of mappings that were cut and moved together.
static void test_any_block_reads_as_zero(void **state) {
    (void)state;
    page_map_init();
    char *blocks[6] = {NULL};
    uint64_t random_state = test_seed();
    for (unsigned i = 0; i < 300; i++) {
        const unsigned at = (unsigned)random_next(&random_state) % ARRAY_COUNT(blocks);
        if (blocks[at] != NULL) {
            drop(blocks[at]);
        }
        const size_t bytes = 2 * MIB + 4096 * (1 + random_next(&random_state) % 1000);
        const bool zero = random_next(&random_state) % 4 != 0;
        blocks[at] = huge_alloc(bytes, PAGE_BYTES, zero);
        assert_non_null(blocks[at]);
        if (zero) {
            check_zero(blocks[at], bytes);
        }
        memset(blocks[at], 0xff, i % 100 < 70 ? bytes : 4096);
        assert_int_equal(huge_check(), 0);
    }
}

static void test_pages_that_cannot_go_are_cleared(void **state) {
    (void)state;
    page_map_init();
    fake_os_fail(OS_MADVISE, 1, true);
    for (unsigned i = 0; i < 4; i++) {
        char *block = make_zeroed(BLOCK_BYTES);
        check_zero(block, BLOCK_BYTES);
        memset(block, 1, BLOCK_BYTES);
        huge_table_state.clears = i % 2;
        drop(block);
    }
}

static void test_memory_that_is_cleared_when_freed_stays_away(void **state) {
    (void)state;
    options.zero_on_free = 1;
    page_map_init();
    use_densely();
    use_densely();
    char *block = make_zeroed(BLOCK_BYTES);
    assert_int_equal(resident_bytes(block), 0);
    check_zero(block, BLOCK_BYTES);
    drop(block);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dense_blocks_are_cleared),
        cmocka_unit_test(test_sparse_blocks_stay_without_memory),
        cmocka_unit_test(test_a_program_that_changes_is_noticed),
        cmocka_unit_test(test_resized_blocks_say_nothing),
        cmocka_unit_test(test_any_block_reads_as_zero),
        cmocka_unit_test(test_pages_that_cannot_go_are_cleared),
        cmocka_unit_test(test_memory_that_is_cleared_when_freed_stays_away),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
