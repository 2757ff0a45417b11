// calloc gives zeros: on fresh memory, after dirty reuse, after purging, through every kind of
// block.
#include "api.h"

static const size_t sizes[] = {
    1,       7,      8,       16,      17,      24,      40,      64,      100,     128,    200,
    256,     400,    512,     640,     1000,    1024,    1025,    2000,    4000,    4096,   4097,
    8192,    10000,  16384,   30000,   32768,   40000,   65536,   65537,   100000,  131072, 200000,
    1 << 18, 300000, 1 << 20, 1500000, 1 << 21, 3 << 20, 5 << 20, 1 << 23, 20 << 20};
#define SIZE_COUNT (sizeof sizes / sizeof sizes[0])

static void dirty_and_free(size_t bytes, int count) {
    static void *blocks[1000];
    for (int i = 0; i < count; i++) {
        blocks[i] = malloc(bytes);
        assert_non_null(blocks[i]);
        memset(blocks[i], 0xa5, malloc_usable_size(blocks[i]));
    }
    for (int i = 0; i < count; i++) {
        free(blocks[i]);
    }
}

static void require_zeroed(size_t bytes, int count) {
    static void *blocks[1000];
    for (int i = 0; i < count; i++) {
        blocks[i] = i % 2 == 0 ? calloc(1, bytes) : calloc(bytes, 1);
        assert_non_null(blocks[i]);
        if (!all_zero(blocks[i], bytes)) {
            fail_msg("calloc of %zu bytes gave bytes that are not zero", bytes);
        }
        memset(blocks[i], 0x5a, bytes);
    }
    for (int i = 0; i < count; i++) {
        free(blocks[i]);
    }
}

static int count_for(size_t bytes) {
    return bytes <= 1024 ? 1000 : bytes <= 65536 ? 100 : bytes <= MIB ? 8 : 2;
}

static void fresh_blocks_are_zero(void **state) {
    (void)state;
    for (size_t i = 0; i < SIZE_COUNT; i++) {
        require_zeroed(sizes[i], count_for(sizes[i]));
    }
}

static void reused_blocks_are_zero(void **state) {
    (void)state;
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < SIZE_COUNT; i++) {
            dirty_and_free(sizes[i], count_for(sizes[i]));
            require_zeroed(sizes[i], count_for(sizes[i]));
        }
    }
}

// Memory that was used as one kind of block and comes back as another.
static void reuse_across_sizes_is_zero(void **state) {
    (void)state;
    uint64_t seed = 20240613;
    for (int round = 0; round < 200; round++) {
        size_t first = random_log_size(&seed, 4 * MIB);
        size_t second = random_log_size(&seed, 4 * MIB);
        int first_count = first > 65536 ? 2 : 50;
        int second_count = second > 65536 ? 2 : 50;
        dirty_and_free(first, first_count);
        require_zeroed(second, second_count);
    }
}

static void zero_after_trim(void **state) {
    (void)state;
    for (size_t i = 0; i < SIZE_COUNT; i++) {
        dirty_and_free(sizes[i], count_for(sizes[i]));
        malloc_trim(0);
        require_zeroed(sizes[i], count_for(sizes[i]));
    }
}

// A block that grew by moving pages and was freed must not come back with old contents.
static void zero_after_realloc(void **state) {
    (void)state;
    for (int round = 0; round < 3; round++) {
        for (size_t bytes = 100 * KIB; bytes <= 8 * MIB; bytes *= 2) {
            void *block = malloc(bytes);
            assert_non_null(block);
            memset(block, 0xff, bytes);
            block = realloc(block, bytes * 3);
            assert_non_null(block);
            memset(block, 0xff, bytes * 3);
            void *half = realloc(block, bytes / 2);
            assert_non_null(half);
            free(half);
            require_zeroed(bytes, 2);
            require_zeroed(bytes / 2, 2);
            require_zeroed(bytes * 3, 1);
        }
    }
}

int main(void) {
    behaviour_require_allocator();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fresh_blocks_are_zero),      cmocka_unit_test(reused_blocks_are_zero),
        cmocka_unit_test(reuse_across_sizes_is_zero), cmocka_unit_test(zero_after_trim),
        cmocka_unit_test(zero_after_realloc),
    };
    int failed = cmocka_run_group_tests_name("calloc", tests, NULL, NULL);
    behaviour_require_sound_heap();
    return failed;
}
