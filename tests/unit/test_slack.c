// Slack: what lies behind a request is filled, and looked at, through the entry points, with nothing but
// the option slack_check.
#include "isolate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/alloc.h"
#include "base/bits.h"
#include "config/counters.h"
#include "control/check.h"
#include "fake_os.h"
#include "heap/slack.h"

static void check_slack(void) {
    setenv("HAKMEM_SLACK_CHECK", "1", 1);
    setenv("HAKMEM_ABORT", "0", 1);
}

static unsigned char *take(size_t bytes) {
    unsigned char *block = hakmem_alloc(bytes);
    assert_non_null(block);
    return block;
}

static size_t block_bytes_of(const void *block) {
    return size_classes[arena_find((uintptr_t)block)->class_index].block_bytes;
}

// What the last call wrote to standard error.
static const char *said;

// How often misuse was reported by a call.
#define reports_of(call)                                                                        \
    ({                                                                                          \
        const uint64_t before_ = atomic_load_relaxed(&process_counters.value[COUNTER_misuses]); \
        stderr_begin();                                                                         \
        call;                                                                                   \
        said = stderr_end();                                                                    \
        atomic_load_relaxed(&process_counters.value[COUNTER_misuses]) - before_;                \
    })

static void test_usable_is_the_request(void **state) {
    (void)state;
    check_slack();
    for (size_t bytes = 0; bytes < SMALL_BYTES_MAX; bytes += bytes < 2100 ? 1 : 97) {
        unsigned char *block = take(bytes);
        assert_int_equal(hakmem_block_bytes(block), bytes == 0 ? 1 : bytes);
        const size_t end = block_bytes_of(block);
        assert_true(end > bytes);
        for (size_t at = hakmem_block_bytes(block); at < end; at++) {
            assert_int_not_equal(block[at], 0);
        }
        memset(block, 0x5A, hakmem_block_bytes(block));
        assert_int_equal(reports_of(hakmem_dealloc(block)), 0);
    }
    // A block of 64 KiB has no room for slack.
    unsigned char *block = take(SMALL_BYTES_MAX);
    assert_int_equal(hakmem_block_bytes(block), SMALL_BYTES_MAX);
    dealloc_sized(block, BLOCK_ALIGN, SMALL_BYTES_MAX);
    assert_int_equal(check_all(), 0);
}

static void test_each_byte_is_looked_at(void **state) {
    (void)state;
    check_slack();
    static const size_t sizes[] = {0, 1, 15, 16, 17, 100, 208, 1024, 8000, 65535};
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        const size_t usable = greatest_u64(sizes[i], 1);
        size_t end = usable + 1;
        for (size_t at = usable; at < end; at += at < usable + 40 ? 1 : 61) {
            unsigned char *block = take(sizes[i]);
            end = block_bytes_of(block);
            // The end of a string that is a byte too long, or any other change.
            block[at] = at % 2 == 0 ? 0 : (unsigned char)(block[at] + 1);
            assert_int_equal(reports_of(hakmem_dealloc(block)), 1);
            char line[200];
            snprintf(
                line, sizeof line,
                "hakmem: buffer overflow: 0x%zx was changed, %zu bytes behind the end of the "
                "%zu-byte block (class %u) at 0x%zx, live; expected no write outside the block\n",
                (size_t)(uintptr_t)(block + at), at - usable, usable,
                arena_find((uintptr_t)block)->class_index, (size_t)(uintptr_t)block);
            assert_string_equal(said, line);
        }
    }
    assert_int_equal(check_all(), 0);
}

static void test_measuring_and_resizing_look_once(void **state) {
    (void)state;
    check_slack();
    unsigned char *block = take(100);
    block[100] = 0;
    assert_int_equal(reports_of(assert_int_equal(hakmem_block_bytes(block), 100)), 1);
    assert_int_equal(reports_of(hakmem_block_bytes(block)), 0);
    block[111] = 0;
    assert_int_equal(reports_of(assert_ptr_equal(hakmem_resize(block, 104), block)), 1);
    assert_int_equal(reports_of(hakmem_dealloc(block)), 0);
}

static void test_resize_moves_the_border(void **state) {
    (void)state;
    check_slack();
    unsigned char *block = take(97);
    memset(block, 7, 97);
    assert_ptr_equal(hakmem_resize(block, 111), block);
    assert_int_equal(hakmem_block_bytes(block), 111);
    for (size_t at = 97; at < 111; at++) {
        assert_int_equal(block[at], 0);
    }
    block[110] = 9;
    assert_ptr_equal(hakmem_resize(block, 98), block);
    assert_int_equal(hakmem_block_bytes(block), 98);
    assert_int_equal(block[97], 0);
    // No longer the program's.
    block[98] = 9;
    assert_int_equal(reports_of(block = hakmem_resize(block, 1000)), 1);
    assert_int_equal(block[0], 7);
    assert_int_equal(hakmem_block_bytes(block), 1000);
    block = hakmem_resize(block, 200000);
    block = hakmem_resize(block, 30);
    assert_int_equal(hakmem_block_bytes(block), 30);
    block[30] = 0;
    assert_int_equal(reports_of(hakmem_dealloc(block)), 1);
    assert_int_equal(check_all(), 0);
}

static void test_aligned_blocks_have_slack(void **state) {
    (void)state;
    check_slack();
    for (size_t alignment = 32; alignment <= SMALL_BYTES_MAX; alignment *= 2) {
        for (size_t bytes = 0; bytes < SMALL_BYTES_MAX; bytes = bytes * 2 + 1) {
            unsigned char *block = hakmem_alloc_aligned(alignment, bytes);
            assert_int_equal((uintptr_t)block % alignment, 0);
            assert_int_equal(hakmem_block_bytes(block), greatest_u64(bytes, 1));
            block[greatest_u64(bytes, 1)] = 0;
            assert_int_equal(reports_of(hakmem_dealloc(block)), 1);
        }
    }
    assert_int_equal(check_all(), 0);
}

static void test_calloc_clears_and_sizes_are_exact(void **state) {
    (void)state;
    setenv("HAKMEM_MODE", "hardened", 1);
    check_slack();
    unsigned char *block = hakmem_alloc_zeroed(50);
    for (size_t at = 0; at < 50; at++) {
        assert_int_equal(block[at], 0);
    }
    assert_int_equal(reports_of(dealloc_sized(block, BLOCK_ALIGN, 51)), 1);
    assert_non_null(strstr(said, "size mismatch"));
    assert_int_equal(reports_of(dealloc_sized(block, BLOCK_ALIGN, 50)), 0);
}

// A slab that ends gives its piece of metadata back, whose size must be that of its making.
static void test_slabs_come_and_go(void **state) {
    (void)state;
    check_slack();
    enum { COUNT = 3000 };
    static unsigned char *blocks[COUNT];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < COUNT; i++) {
            blocks[i] = take((size_t)i);
        }
        assert_int_equal(check_all(), 0);
        for (int i = 0; i < COUNT; i++) {
            hakmem_dealloc(blocks[i]);
        }
        hakmem_dealloc(take(1));
    }
    assert_int_equal(atomic_load_relaxed(&process_counters.value[COUNTER_misuses]), 0);
    assert_int_equal(check_all(), 0);
}

// Without the option nothing behind the request is filled or looked at.
static void test_off(void **state) {
    (void)state;
    unsigned char *block = take(100);
    memset(block, 0, 112);
    assert_int_equal(hakmem_block_bytes(block), 112);
    assert_int_equal(reports_of(hakmem_dealloc(block)), 0);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_usable_is_the_request),
        cmocka_unit_test(test_each_byte_is_looked_at),
        cmocka_unit_test(test_measuring_and_resizing_look_once),
        cmocka_unit_test(test_resize_moves_the_border),
        cmocka_unit_test(test_aligned_blocks_have_slack),
        cmocka_unit_test(test_calloc_clears_and_sizes_are_exact),
        cmocka_unit_test(test_slabs_come_and_go),
        cmocka_unit_test(test_off),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
