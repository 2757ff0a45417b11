// Sizes: zero, the largest, overflow of a product; errno on failure, and errno left alone by free.
#include "api.h"

static void require_refused(void *block) {
    assert_null(block);
    assert_int_equal(errno, ENOMEM);
    errno = 0;
}

static void size_zero_gives_distinct_blocks(void **state) {
    (void)state;
    enum { COUNT = 1000 };
    static void *blocks[COUNT];
    for (int i = 0; i < COUNT; i++) {
        switch (i % 8) {
        case 0:
            blocks[i] = malloc(opaque(0));
            break;
        case 1:
            blocks[i] = calloc(opaque(0), 8);
            break;
        case 2:
            blocks[i] = calloc(8, opaque(0));
            break;
        case 3:
            blocks[i] = realloc(NULL, opaque(0));
            break;
        case 4:
            blocks[i] = reallocarray(NULL, opaque(0), 7);
            break;
        case 5:
            blocks[i] = memalign(64, opaque(0));
            break;
        case 6:
            blocks[i] = aligned_alloc(64, opaque(0));
            break;
        default:
            assert_int_equal(posix_memalign(&blocks[i], 64, opaque(0)), 0);
        }
        assert_non_null(blocks[i]);
        assert_true(aligned_to(blocks[i], i % 8 >= 5 ? 64 : 16));
    }
    for (int i = 0; i < COUNT; i++) {
        for (int other = 0; other < i; other++) {
            assert_ptr_not_equal(blocks[i], blocks[other]);
        }
    }
    for (int i = 0; i < COUNT; i++) {
        free(blocks[i]);
    }
    void *page_aligned = valloc(opaque(0));
    assert_non_null(page_aligned);
    assert_true(aligned_to(page_aligned, 4096));
    free(page_aligned);
    page_aligned = pvalloc(opaque(0));
    assert_non_null(page_aligned);
    assert_true(aligned_to(page_aligned, 4096));
    free(page_aligned);
}

static void impossible_sizes_are_refused(void **state) {
    (void)state;
    errno = 0;
    for (size_t i = 0; i < IMPOSSIBLE_COUNT; i++) {
        size_t bytes = opaque(impossible_sizes[i]);
        require_refused(malloc(bytes));
        require_refused(calloc(bytes, 1));
        require_refused(calloc(1, bytes));
        require_refused(realloc(NULL, bytes));
        require_refused(reallocarray(NULL, bytes, 1));
        require_refused(reallocarray(NULL, 1, bytes));
        require_refused(memalign(1, bytes));
        require_refused(memalign(16, bytes));
        require_refused(memalign(64, bytes));
        require_refused(memalign(4096, bytes));
        require_refused(memalign(1 << 20, bytes));
        require_refused(aligned_alloc(16, bytes));
        require_refused(aligned_alloc(64, bytes));
        require_refused(aligned_alloc(4096, bytes));
        require_refused(valloc(bytes));
        require_refused(pvalloc(bytes));
        void *untouched = (void *)&errno;
        assert_int_equal(posix_memalign(&untouched, 64, bytes), ENOMEM);
        assert_ptr_equal(untouched, &errno);
        assert_int_equal(posix_memalign(&untouched, 8, bytes), ENOMEM);
        assert_int_equal(posix_memalign(&untouched, 1 << 20, bytes), ENOMEM);
        assert_ptr_equal(untouched, &errno);
        errno = 0;
    }
}

static void refused_realloc_keeps_the_block(void **state) {
    (void)state;
    static const size_t sizes[] = {1, 24, 100, 1000, 5000, 70000, 300000, 3000000, 40000000};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        char *block = (char *)malloc(sizes[s]);
        assert_non_null(block);
        pattern_fill(block, sizes[s], s);
        for (size_t i = 0; i < IMPOSSIBLE_COUNT; i++) {
            errno = 0;
            require_refused(realloc(block, opaque(impossible_sizes[i])));
            require_refused(reallocarray(block, opaque(impossible_sizes[i]), 2));
        }
        // Not above PTRDIFF_MAX, but no machine has it.
        require_refused(realloc(block, opaque((size_t)1 << 60)));
        assert_int_equal(pattern_differs(block, sizes[s], s), sizes[s]);
        free(block);
    }
}

// Below PTRDIFF_MAX and yet more than the address space holds.
static void sizes_above_the_address_space_are_refused(void **state) {
    (void)state;
    for (unsigned int shift = 47; shift < 63; shift++) {
        errno = 0;
        require_refused(malloc(opaque((size_t)1 << shift)));
        require_refused(calloc(opaque((size_t)1 << shift), 1));
        require_refused(memalign(4096, opaque((size_t)1 << shift)));
        void *untouched = (void *)&errno;
        assert_int_equal(posix_memalign(&untouched, 64, opaque((size_t)1 << shift)), ENOMEM);
        assert_ptr_equal(untouched, &errno);
    }
}

static void products_that_overflow_are_refused(void **state) {
    (void)state;
    static const size_t factors[][2] = {
        {SIZE_MAX, 2},
        {2, SIZE_MAX},
        {SIZE_MAX, SIZE_MAX},
        {SIZE_MAX / 2 + 1, 2},
        {2, SIZE_MAX / 2 + 1},
        {(size_t)1 << 32, (size_t)1 << 32},
        {((size_t)1 << 32) + 1, (size_t)1 << 32},
        {SIZE_MAX / 16 + 1, 16},
        {16, SIZE_MAX / 16 + 1},
        {(SIZE_MAX / 3) + 1, 3},
        {(size_t)1 << 63, 2},
        {(size_t)1 << 62, 4},
        {((size_t)1 << 62) + 4, 4},
    };
    void *block = malloc(64);
    assert_non_null(block);
    pattern_fill(block, 64, 7);
    errno = 0;
    for (size_t i = 0; i < sizeof factors / sizeof factors[0]; i++) {
        size_t a = opaque(factors[i][0]);
        size_t b = opaque(factors[i][1]);
        require_refused(calloc(a, b));
        require_refused(reallocarray(NULL, a, b));
        require_refused(reallocarray(block, a, b));
    }
    assert_int_equal(pattern_differs(block, 64, 7), 64);
    free(block);
    // Zero times anything is no overflow.
    block = calloc(0, SIZE_MAX);
    assert_non_null(block);
    free(block);
    block = calloc(SIZE_MAX, 0);
    assert_non_null(block);
    free(block);
    block = reallocarray(NULL, 0, SIZE_MAX);
    assert_non_null(block);
    free(block);
}

// A refused request must leave nothing behind: no mapping, no lock, no lost block.
static void refusals_cost_nothing(void **state) {
    (void)state;
    for (int round = 0; round < 2; round++) {
        size_t before = rss_bytes();
        for (int i = 0; i < 100000; i++) {
            assert_null(malloc(opaque(SIZE_MAX - (size_t)i)));
        }
        for (int i = 0; i < 500; i++) {
            assert_null(malloc(opaque((size_t)1 << 48)));
            assert_null(memalign(1 << 21, opaque((size_t)1 << 48)));
        }
        size_t after = rss_bytes();
        if (round == 1) {
            assert_true(after < before + MIB);
        }
    }
    void *block = malloc(100);
    assert_non_null(block);
    free(block);
}

static void free_preserves_errno(void **state) {
    (void)state;
    static const size_t sizes[] = {1,         16,      100,     1024,    8192,    65536,
                                   65537,     1 << 18, 1 << 20, 3 << 20, 1 << 22, 1 << 24,
                                   100 << 20, 0,       48,      1 << 12};
    enum { COUNT = 200 };
    static void *blocks[COUNT];
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        int count = sizes[s] > MIB ? 3 : COUNT;
        for (int i = 0; i < count; i++) {
            blocks[i] = malloc(sizes[s]);
            assert_non_null(blocks[i]);
        }
        for (int i = 0; i < count; i++) {
            errno = 4711 + i;
            free(blocks[i]);
            assert_int_equal(errno, 4711 + i);
        }
    }
    errno = 42;
    free(NULL);
    assert_int_equal(errno, 42);
    void *aligned = memalign(1 << 21, 5 << 20);
    assert_non_null(aligned);
    errno = 43;
    free(aligned);
    assert_int_equal(errno, 43);
}

static void free_null_does_nothing(void **state) {
    (void)state;
    for (int i = 0; i < 1000; i++) {
        free(NULL);
    }
}

int main(void) {
    behaviour_require_allocator();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(size_zero_gives_distinct_blocks),
        cmocka_unit_test(impossible_sizes_are_refused),
        cmocka_unit_test(refused_realloc_keeps_the_block),
        cmocka_unit_test(sizes_above_the_address_space_are_refused),
        cmocka_unit_test(products_that_overflow_are_refused),
        cmocka_unit_test(refusals_cost_nothing),
        cmocka_unit_test(free_preserves_errno),
        cmocka_unit_test(free_null_does_nothing),
    };
    int failed = cmocka_run_group_tests_name("sizes", tests, NULL, NULL);
    behaviour_require_sound_heap();
    return failed;
}
