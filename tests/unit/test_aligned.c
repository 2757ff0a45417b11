// Aligned blocks: of every alignment, from magazines and from below, with the built-in classes and others.
#include "isolate.h"

#include <errno.h>

#include "api/alloc.h"
#include "base/bits.h"
#include "marked.h"

static void test_alignments(void **state) {
    (void)state;
    for (size_t alignment = 1; alignment <= 256 * MIB; alignment *= 2) {
        for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
            char *block = hakmem_alloc_aligned(alignment, sizes[i]);
            assert_non_null(block);
            assert_int_equal((uintptr_t)block % alignment, 0);
            assert_int_equal((uintptr_t)block % BLOCK_ALIGN, 0);
            assert_true(hakmem_block_bytes(block) >= sizes[i]);
            mark(block, sizes[i], 1);
            hakmem_dealloc(block);
        }
        char *empty = hakmem_alloc_aligned(alignment, 0);
        assert_non_null(empty);
        assert_int_equal((uintptr_t)empty % alignment, 0);
        hakmem_dealloc(empty);
    }
    check();
}

#define WARM_BLOCKS 60

// Fills the magazine of a class, past the operations that it is watched for.
static void warm(size_t bytes) {
    void *blocks[WARM_BLOCKS];
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < WARM_BLOCKS; i++) {
            blocks[i] = hakmem_alloc(bytes);
        }
        for (unsigned i = 0; i < WARM_BLOCKS; i++) {
            hakmem_dealloc(blocks[i]);
        }
    }
}

static void check_aligned(size_t alignment, size_t bytes) {
    char *blocks[WARM_BLOCKS / 2];
    for (unsigned i = 0; i < ARRAY_COUNT(blocks); i++) {
        blocks[i] = hakmem_alloc_aligned(alignment, bytes);
        assert_non_null(blocks[i]);
        assert_int_equal((uintptr_t)blocks[i] % alignment, 0);
        assert_true(hakmem_block_bytes(blocks[i]) >= bytes);
        mark(blocks[i], bytes, (char)i);
    }
    for (unsigned i = 0; i < ARRAY_COUNT(blocks); i++) {
        check_marked(blocks[i], bytes, (char)i);
        hakmem_dealloc(blocks[i]);
    }
}

static void check_alignments_from_warm_magazines(void) {
    for (size_t i = 0; i < SIZE_CLASS_COUNT && i < size_class_table.count; i++) {
        warm(size_classes[i].block_bytes);
    }
    for (size_t alignment = 1; alignment <= PAGE_BYTES; alignment *= 2) {
        for (size_t bytes = 0; bytes <= 8192; bytes += bytes < 600 ? 1 : 101) {
            check_aligned(alignment, bytes);
        }
    }
    check();
}

static void test_aligned_blocks_of_warm_magazines(void **state) {
    (void)state;
    check_alignments_from_warm_magazines();
}

// Classes of which no multiple of an alignment is one.
static void test_aligned_blocks_with_the_classes_of_a_profile(void **state) {
    (void)state;
    static const struct profile profile = {
        .class_count = 6,
        .classes = {{48, 0}, {112, 0}, {656, 0}, {4112, 0}, {20000, 0}, {65536, 0}}};
    assert_null(size_class_load(&profile));
    check_alignments_from_warm_magazines();
}

static void test_aligned_blocks_are_hits(void **state) {
    (void)state;
    for (size_t alignment = 16; alignment <= 4096; alignment *= 2) {
        warm(align_up(100, alignment));
        const uint32_t before = atomic_load_relaxed(&thread_cache->activity);
        for (unsigned i = 0; i < 1000; i++) {
            hakmem_dealloc(hakmem_alloc_aligned(alignment, 100));
        }
        assert_int_equal(atomic_load_relaxed(&thread_cache->activity), before);
    }
}

static void test_odd_alignments_are_raised(void **state) {
    (void)state;
    static const size_t odd[][2] = {{0, 16},    {3, 16},      {17, 32},         {24, 32},
                                    {100, 128}, {4097, 8192}, {100000, 131072}, {3 * MIB, 4 * MIB}};
    for (size_t i = 0; i < ARRAY_COUNT(odd); i++) {
        char *block = hakmem_alloc_aligned(odd[i][0], 1000);
        assert_non_null(block);
        assert_int_equal((uintptr_t)block % odd[i][1], 0);
        hakmem_dealloc(block);
    }
    static const size_t impossible[] = {SIZE_MAX, (size_t)1 << 63, ((size_t)1 << 62) + 1,
                                        (size_t)1 << 62, (size_t)1 << 47};
    for (size_t i = 0; i < ARRAY_COUNT(impossible); i++) {
        errno = 0;
        assert_null(hakmem_alloc_aligned(impossible[i], 1));
        assert_int_equal(errno, ENOMEM);
    }
    check();
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alignments),
        cmocka_unit_test(test_odd_alignments_are_raised),
        cmocka_unit_test(test_aligned_blocks_of_warm_magazines),
        cmocka_unit_test(test_aligned_blocks_with_the_classes_of_a_profile),
        cmocka_unit_test(test_aligned_blocks_are_hits),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
