// Alignment through every entry point: zero, odd, up to 1 GiB, larger than the size.
#include "api.h"

#include <stdlib.h>

#if defined(__GLIBC__)
#include <gnu/libc-version.h>
#endif

static void natural_alignment(void **state) {
    (void)state;
    for (size_t bytes = 0; bytes < 200000; bytes = bytes < 300 ? bytes + 1 : bytes * 9 / 8) {
        void *a = malloc(bytes);
        void *b = calloc(1, bytes);
        void *c = realloc(NULL, bytes);
        assert_true(a != NULL && b != NULL && c != NULL);
        assert_true(aligned_to(a, 16) && aligned_to(b, 16) && aligned_to(c, 16));
        free(a);
        free(b);
        free(c);
    }
}

static void require_aligned(void *block, size_t alignment, size_t bytes) {
    assert_non_null(block);
    if (!aligned_to(block, alignment)) {
        fail_msg("%zu bytes at %p are not aligned to %zu", bytes, block, alignment);
    }
    size_t usable = malloc_usable_size(block);
    assert_true(usable >= bytes);
    if (bytes > 0) {
        ((volatile char *)block)[0] = 1;
        ((volatile char *)block)[bytes - 1] = 1;
        ((volatile char *)block)[usable - 1] = 1;
    }
}

static void every_power_of_two_to_64_mib(void **state) {
    (void)state;
    static const size_t sizes[] = {0,
                                   1,
                                   8,
                                   17,
                                   100,
                                   255,
                                   256,
                                   1000,
                                   4095,
                                   4096,
                                   4097,
                                   10000,
                                   65535,
                                   65536,
                                   65537,
                                   100000,
                                   1 << 18,
                                   1 << 20,
                                   (1 << 20) + 1,
                                   2 << 20,
                                   3 << 20,
                                   (4 << 20) - 1,
                                   5 << 20};
    for (size_t alignment = 1; alignment <= 64 * MIB; alignment *= 2) {
        enum { KEPT = 3 };
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            void *blocks[3 * KEPT];
            for (int i = 0; i < KEPT; i++) {
                size_t bytes = sizes[s];
                blocks[3 * i] = memalign(alignment, bytes);
                require_aligned(blocks[3 * i], alignment, bytes);
                blocks[3 * i + 1] = aligned_alloc(alignment, bytes);
                require_aligned(blocks[3 * i + 1], alignment, bytes);
                blocks[3 * i + 2] = NULL;
                if (alignment >= sizeof(void *)) {
                    assert_int_equal(posix_memalign(&blocks[3 * i + 2], alignment, bytes), 0);
                    require_aligned(blocks[3 * i + 2], alignment, bytes);
                }
            }
            for (int i = 0; i < 3 * KEPT; i++) {
                free(blocks[i]);
            }
        }
    }
}

struct aligned_sizes {
    size_t alignment;
};

static void visit_alignment(size_t bytes, void *context) {
    const struct aligned_sizes *all = (const struct aligned_sizes *)context;
    void *block = memalign(all->alignment, bytes);
    require_aligned(block, all->alignment, bytes);
    free(block);
}

// No size class may forget an alignment: every size of a few pages, and every border above.
static void every_size_at_every_alignment_to_1_mib(void **state) {
    (void)state;
    for (size_t alignment = 8; alignment <= MIB; alignment *= 2) {
        struct aligned_sizes all = {alignment};
        for (size_t bytes = 0; bytes <= (alignment <= 4096 ? 9000 : 300); bytes++) {
            visit_alignment(bytes, &all);
        }
        for_border_sizes(3 * MIB, visit_alignment, &all);
    }
}

static void up_to_1_gib(void **state) {
    (void)state;
    for (size_t alignment = 128 * MIB; alignment <= GIB; alignment *= 2) {
        static const size_t sizes[] = {1, 100, 65537, 1 << 20, 5 << 20};
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            void *one = memalign(alignment, sizes[s]);
            require_aligned(one, alignment, sizes[s]);
            void *two = NULL;
            assert_int_equal(posix_memalign(&two, alignment, sizes[s]), 0);
            require_aligned(two, alignment, sizes[s]);
            assert_ptr_not_equal(one, two);
            free(one);
            free(two);
        }
    }
}

enum { SPREAD_COUNT = 32, SPREAD_BYTES = 64 * MIB };

// What becomes resident for one page in each 64 MiB without any allocator. Under an emulator, which keeps its own
// tables of what it maps, that is more than the pages.
static size_t spread_pages_rss(void) {
    char *mappings[SPREAD_COUNT];
    const size_t before = rss_bytes();
    for (int i = 0; i < SPREAD_COUNT; i++) {
        mappings[i] = mmap(NULL, SPREAD_BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        assert_ptr_not_equal(mappings[i], MAP_FAILED);
        mappings[i][SPREAD_BYTES / 2] = 1;
    }
    const size_t after = rss_bytes();
    for (int i = 0; i < SPREAD_COUNT; i++) {
        munmap(mappings[i], SPREAD_BYTES);
    }
    return after > before ? after - before : 0;
}

// What lies before an aligned address belongs to nobody and must not become resident.
static void alignment_does_not_hold_memory(void **state) {
    (void)state;
    void *blocks[SPREAD_COUNT];
    const size_t unavoidable = spread_pages_rss();
    size_t before = rss_bytes();
    for (int i = 0; i < SPREAD_COUNT; i++) {
        blocks[i] = memalign(SPREAD_BYTES, 100);
        require_aligned(blocks[i], SPREAD_BYTES, 100);
    }
    assert_true(rss_bytes() < before + unavoidable + 8 * MIB);
    for (int i = 0; i < SPREAD_COUNT; i++) {
        free(blocks[i]);
    }
}

static size_t power_of_two_from(size_t value) {
    size_t power = 1;
    while (power < value) {
        power *= 2;
    }
    return power;
}

// memalign rounds an odd alignment up; aligned_alloc did so until glibc 2.38 and refuses it since. (musl takes 0.)
static bool aligned_alloc_refuses(size_t alignment) {
#if defined(__GLIBC__)
    (void)alignment;
    unsigned major = 0;
    unsigned minor = 0;
    assert_int_equal(sscanf(gnu_get_libc_version(), "%u.%u", &major, &minor), 2);
    return major > 2 || minor >= 38;
#else
    return alignment != 0;
#endif
}

static void alignments_that_are_no_power_of_two(void **state) {
    (void)state;
    static const size_t odd[] = {0, 3, 5, 6, 7, 9, 12, 24, 48, 100, 1000, 5000, 65537, 3 << 20};
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        size_t alignment = opaque(odd[i]);
        void *block = memalign(alignment, 200);
        require_aligned(block, power_of_two_from(odd[i]), 200);
        free(block);
        errno = 0;
        block = aligned_alloc(alignment, 200);
        if (aligned_alloc_refuses(alignment)) {
            assert_null(block);
            assert_int_equal(errno, EINVAL);
        } else {
            require_aligned(block, power_of_two_from(odd[i]), 200);
            free(block);
        }
        void *untouched = (void *)&errno;
        assert_int_equal(posix_memalign(&untouched, alignment, 200), EINVAL);
        assert_ptr_equal(untouched, &errno);
    }
}

static void posix_memalign_refuses_small_alignments(void **state) {
    (void)state;
    static const size_t refused[] = {0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 12, 15, 17, 24};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        void *untouched = (void *)&errno;
        errno = 0;
        assert_int_equal(posix_memalign(&untouched, opaque(refused[i]), 100), EINVAL);
        assert_ptr_equal(untouched, &errno);
        // EINVAL comes before ENOMEM.
        assert_int_equal(posix_memalign(&untouched, opaque(refused[i]), opaque(SIZE_MAX)), EINVAL);
        assert_ptr_equal(untouched, &errno);
    }
    void *block = NULL;
    assert_int_equal(posix_memalign(&block, 8, 100), 0);
    require_aligned(block, 8, 100);
    free(block);
}

static void impossible_alignments_are_refused(void **state) {
    (void)state;
    static const size_t alignments[] = {SIZE_MAX, SIZE_MAX - 15, SIZE_MAX / 2 + 2,
                                        ((size_t)1 << 63) + ((size_t)1 << 62)};
    for (size_t i = 0; i < sizeof alignments / sizeof alignments[0]; i++) {
        for (size_t bytes = 1; bytes <= 1 << 20; bytes *= 1024) {
            size_t alignment = opaque(alignments[i]);
            errno = 0;
            assert_null(memalign(alignment, bytes));
            assert_int_equal(errno, EINVAL);
            errno = 0;
            assert_null(aligned_alloc(alignment, bytes));
            assert_int_equal(errno, EINVAL);
            void *untouched = (void *)&errno;
            assert_int_equal(posix_memalign(&untouched, alignment, bytes), EINVAL);
            assert_ptr_equal(untouched, &errno);
        }
    }
    // Powers of two that no address but 0 has.
    for (unsigned int shift = 48; shift <= 63; shift++) {
        size_t alignment = opaque((size_t)1 << shift);
        errno = 0;
        assert_null(memalign(alignment, 1));
        assert_true(errno == ENOMEM || errno == EINVAL);
        errno = 0;
        assert_null(memalign(alignment, opaque(PTRDIFF_MAX)));
        assert_true(errno == ENOMEM || errno == EINVAL);
        void *untouched = (void *)&errno;
        assert_int_equal(posix_memalign(&untouched, alignment, 1), ENOMEM);
        assert_ptr_equal(untouched, &errno);
    }
}

// Size and alignment whose sum wraps.
static void size_plus_alignment_overflow(void **state) {
    (void)state;
    for (unsigned int shift = 4; shift <= 40; shift++) {
        size_t alignment = (size_t)1 << shift;
        errno = 0;
        assert_null(memalign(alignment, opaque(SIZE_MAX - alignment + 1)));
        assert_int_equal(errno, ENOMEM);
        errno = 0;
        assert_null(memalign(alignment, opaque((size_t)PTRDIFF_MAX - alignment + 1)));
        assert_int_equal(errno, ENOMEM);
        errno = 0;
        assert_null(aligned_alloc(alignment, opaque(SIZE_MAX - alignment / 2)));
        assert_int_equal(errno, ENOMEM);
    }
}

static void page_functions(void **state) {
    (void)state;
    for (size_t bytes = 0; bytes < 3 * MIB; bytes = bytes * 3 + 1) {
        void *one = valloc(bytes);
        require_aligned(one, 4096, bytes);
        void *two = pvalloc(bytes);
        require_aligned(two, 4096, bytes);
        // pvalloc rounds the size up to whole pages.
        assert_true(malloc_usable_size(two) >= (bytes + 4095) / 4096 * 4096);
        memset(two, 1, (bytes + 4095) / 4096 * 4096);
        free(one);
        free(two);
    }
}

static void sizes_of_minus_a_page_are_refused(void **state) {
    (void)state;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t sizes[] = {SIZE_MAX,
                            SIZE_MAX - page,
                            0 - page,
                            0 - page + 1,
                            0 - page - 1,
                            0 - 2 * page,
                            PTRDIFF_MAX,
                            (size_t)PTRDIFF_MAX + 1,
                            PTRDIFF_MAX - page + 1};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t bytes = opaque(sizes[i]);
        errno = 0;
        assert_null(valloc(bytes));
        assert_int_equal(errno, ENOMEM);
        errno = 0;
        assert_null(pvalloc(bytes));
        assert_int_equal(errno, ENOMEM);
        errno = 0;
        assert_null(memalign(page, bytes));
        assert_int_equal(errno, ENOMEM);
        errno = 0;
        assert_null(memalign(2 * page, bytes));
        assert_int_equal(errno, ENOMEM);
        errno = 0;
        assert_null(aligned_alloc(page, bytes));
        assert_int_equal(errno, ENOMEM);
        void *untouched = (void *)&errno;
        assert_int_equal(posix_memalign(&untouched, page, bytes), ENOMEM);
        assert_ptr_equal(untouched, &errno);
    }
}

// C11 lets an implementation insist on it; glibc never did.
static void aligned_alloc_takes_sizes_that_are_no_multiple(void **state) {
    (void)state;
    for (size_t alignment = 16; alignment <= 65536; alignment *= 2) {
        void *block = aligned_alloc(alignment, alignment + 1);
        require_aligned(block, alignment, alignment + 1);
        free(block);
        block = aligned_alloc(alignment, 1);
        require_aligned(block, alignment, 1);
        free(block);
    }
}

static void many_aligned_blocks_are_disjoint(void **state) {
    (void)state;
    enum { COUNT = 3000 };
    static char *blocks[COUNT];
    static size_t sizes[COUNT];
    uint64_t seed = 4242;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < COUNT; i++) {
            size_t alignment = (size_t)1 << random_below(&seed, 15);
            sizes[i] = random_log_size(&seed, 20000);
            blocks[i] = (char *)memalign(alignment, sizes[i]);
            require_aligned(blocks[i], alignment, sizes[i]);
            sizes[i] = malloc_usable_size(blocks[i]);
            pattern_fill(blocks[i], sizes[i], (uint64_t)i);
        }
        for (int i = 0; i < COUNT; i++) {
            assert_int_equal(pattern_differs(blocks[i], sizes[i], (uint64_t)i), sizes[i]);
            free(blocks[i]);
        }
    }
}

int main(void) {
    behaviour_require_allocator();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(natural_alignment),
        cmocka_unit_test(every_power_of_two_to_64_mib),
        cmocka_unit_test(every_size_at_every_alignment_to_1_mib),
        cmocka_unit_test(up_to_1_gib),
        cmocka_unit_test(alignment_does_not_hold_memory),
        cmocka_unit_test(alignments_that_are_no_power_of_two),
        cmocka_unit_test(posix_memalign_refuses_small_alignments),
        cmocka_unit_test(impossible_alignments_are_refused),
        cmocka_unit_test(size_plus_alignment_overflow),
        cmocka_unit_test(page_functions),
        cmocka_unit_test(sizes_of_minus_a_page_are_refused),
        cmocka_unit_test(aligned_alloc_takes_sizes_that_are_no_multiple),
        cmocka_unit_test(many_aligned_blocks_are_disjoint),
    };
    int failed = cmocka_run_group_tests_name("alignment", tests, NULL, NULL);
    behaviour_require_sound_heap();
    return failed;
}
