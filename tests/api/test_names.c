// Every name of the surface exists, comes from the same file, and they work with one another: a
// block from any allocating name is released by any releasing one.
#include "api.h"

extern void cfree(void *block) __attribute__((weak));

static void c23_names_release(void **state) {
    (void)state;
    if (!behaviour_on_hakmem()) {
        // glibc 2.36 has neither.
        assert_true(free_sized == NULL && free_aligned_sized == NULL);
        return;
    }
    assert_true(free_sized != NULL && free_aligned_sized != NULL);
    size_t first = 0;
    const size_t live_before = live_bytes();
    for (int round = 0; round < 40; round++) {
        for (size_t bytes = 1; bytes < 3 * MIB; bytes = bytes * 3 + 1) {
            void *block = malloc(bytes);
            assert_non_null(block);
            memset(block, 1, bytes);
            errno = 5;
            free_sized(block, bytes);
            assert_int_equal(errno, 5);
            block = calloc(1, bytes);
            assert_non_null(block);
            free_sized(block, bytes);
            for (size_t alignment = 16; alignment <= 65536; alignment *= 16) {
                block = aligned_alloc(alignment, bytes);
                assert_non_null(block);
                memset(block, 1, bytes);
                free_aligned_sized(block, alignment, bytes);
            }
        }
        if (round == 3) {
            first = rss_bytes();
        }
    }
    assert_true(rss_bytes() < first + 16 * MIB);
    free_sized(NULL, 0);
    free_sized(NULL, 100);
    free_aligned_sized(NULL, 64, 100);
    assert_int_equal(live_bytes(), live_before);
}

// In a dynamic program, each name resolves to the file that malloc resolves to.
static void names_come_from_one_file(void **state) {
    (void)state;
    static const char *const names[] = {
        "malloc",
        "free",
        "calloc",
        "realloc",
        "reallocarray",
        "posix_memalign",
        "aligned_alloc",
        "memalign",
        "valloc",
        "pvalloc",
        "mallinfo",
        "mallinfo2",
        "mallopt",
        "malloc_info",
        "malloc_stats",
        "malloc_trim",
        "malloc_usable_size",
    };
    static const char *const new_names[] = {"free_sized", "free_aligned_sized"};
    Dl_info expected;
    Dl_info program;
    Dl_info info;
    assert_true(dladdr((void *)(uintptr_t)malloc, &expected) != 0);
    assert_true(dladdr((void *)&names, &program) != 0);
    if (expected.dli_fbase == program.dli_fbase) {
        // Linked into the program itself: the linker has settled it, and gives names to others only
        // where a library asks for them.
        return;
    }
    void *found;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        found = dlsym(RTLD_DEFAULT, names[i]);
        assert_non_null(found);
        assert_true(dladdr(found, &info) != 0);
        assert_string_equal(info.dli_fname, expected.dli_fname);
    }
    for (size_t i = 0; behaviour_on_hakmem() && i < sizeof new_names / sizeof new_names[0]; i++) {
        found = dlsym(RTLD_DEFAULT, new_names[i]);
        assert_non_null(found);
        assert_true(dladdr(found, &info) != 0);
        assert_string_equal(info.dli_fname, expected.dli_fname);
    }
}

// Programs linked against a glibc older than 2.26 still call cfree, and glibc keeps it for them; if
// hakmem had none, they would hand its blocks to glibc's.
static void cfree_is_free(void **state) {
    (void)state;
    void (*old_free)(void *) = cfree;
    assert_non_null(old_free);
    const size_t live_before = live_bytes();
    for (int i = 0; i < 100; i++) {
        void *block = malloc(100);
        assert_non_null(block);
        old_free(block);
    }
    old_free(NULL);
    assert_int_equal(live_bytes(), live_before);
}

// The second names that glibc exports; some programs and old libraries call them.
extern void *__libc_malloc(size_t bytes) __attribute__((weak));
extern void __libc_free(void *block) __attribute__((weak));
extern void *__libc_calloc(size_t count, size_t bytes) __attribute__((weak));
extern void *__libc_realloc(void *block, size_t bytes) __attribute__((weak));
extern void *__libc_memalign(size_t alignment, size_t bytes) __attribute__((weak));
extern void *__libc_valloc(size_t bytes) __attribute__((weak));
extern void *__libc_pvalloc(size_t bytes) __attribute__((weak));
extern int __libc_mallopt(int parameter, int value) __attribute__((weak));
extern struct mallinfo __libc_mallinfo(void) __attribute__((weak));
extern int __posix_memalign(void **result, size_t alignment, size_t bytes) __attribute__((weak));

// glibc dropped this one long ago.
static int second_posix_memalign(void **result, size_t alignment, size_t bytes) {
    assert_int_equal(__posix_memalign != NULL, behaviour_on_hakmem());
    return __posix_memalign != NULL ? __posix_memalign(result, alignment, bytes)
                                    : posix_memalign(result, alignment, bytes);
}

static void second_names_are_the_same_heap(void **state) {
    (void)state;
    for (size_t bytes = 1; bytes < 5 * MIB; bytes = bytes * 7 + 1) {
        void *blocks[7];
        blocks[0] = __libc_malloc(bytes);
        blocks[1] = __libc_calloc(1, bytes);
        blocks[2] = __libc_realloc(NULL, bytes);
        blocks[3] = __libc_memalign(256, bytes);
        blocks[4] = __libc_valloc(bytes);
        blocks[5] = __libc_pvalloc(bytes);
        assert_int_equal(second_posix_memalign(&blocks[6], 256, bytes), 0);
        assert_true(all_zero(blocks[1], bytes));
        for (int i = 0; i < 7; i++) {
            assert_non_null(blocks[i]);
            assert_true(malloc_usable_size(blocks[i]) >= bytes);
            pattern_fill(blocks[i], bytes, (uint64_t)i);
        }
        for (int i = 0; i < 7; i++) {
            assert_int_equal(pattern_differs(blocks[i], bytes, (uint64_t)i), bytes);
            free(blocks[i]);
        }
        __libc_free(malloc(bytes));
        assert_null(__libc_realloc(malloc(bytes), opaque(0)));
    }
    void *untouched = NULL;
    errno = 0;
    assert_null(__libc_malloc(opaque(SIZE_MAX)));
    assert_int_equal(errno, ENOMEM);
    errno = 0;
    assert_null(__libc_calloc(opaque(SIZE_MAX), 2));
    assert_int_equal(errno, ENOMEM);
    assert_int_equal(second_posix_memalign(&untouched, 3, 10), EINVAL);
    assert_null(untouched);
    assert_int_equal(__libc_mallopt(M_TOP_PAD, 0), 1);
    void *kept = malloc(5 * MIB);
    struct mallinfo info = __libc_mallinfo();
    assert_true((size_t)info.uordblks + (size_t)info.hblkhd >= 5 * MIB);
    free(kept);
}

static void *take(int how, size_t bytes) {
    void *block = NULL;
    switch (how) {
    case 0:
        return malloc(bytes);
    case 1:
        return calloc(1, bytes);
    case 2:
        return realloc(NULL, bytes);
    case 3:
        return reallocarray(NULL, 1, bytes);
    case 4:
        return memalign(128, bytes);
    case 5:
        return aligned_alloc(128, bytes);
    case 6:
        return posix_memalign(&block, 128, bytes) == 0 ? block : NULL;
    case 7:
        return valloc(bytes);
    default:
        return pvalloc(bytes);
    }
}

static void any_block_goes_to_any_release(void **state) {
    (void)state;
    for (int how = 0; how <= 8; how++) {
        for (int release = 0; release < 3; release++) {
            for (size_t bytes = 1; bytes < 5 * MIB; bytes = bytes * 5 + 1) {
                char *block = (char *)take(how, bytes);
                assert_non_null(block);
                block[0] = 1;
                block[bytes - 1] = 1;
                switch (release) {
                case 0:
                    free(block);
                    break;
                case 1:
                    assert_null(realloc(block, opaque(0)));
                    break;
                default:
                    block = (char *)realloc(block, bytes * 2);
                    assert_non_null(block);
                    assert_int_equal(block[0], 1);
                    free(block);
                }
            }
        }
    }
}

// libc's own functions hand out blocks that the program frees, and take blocks it allocated.
static void blocks_cross_the_border_to_libc(void **state) {
    (void)state;
    for (int i = 0; i < 200; i++) {
        char *copy = strdup("a string that libc allocates");
        assert_non_null(copy);
        copy = (char *)realloc(copy, 5000);
        assert_non_null(copy);
        assert_string_equal(copy, "a string that libc allocates");
        free(copy);
        char *printed = NULL;
        assert_int_equal(asprintf(&printed, "%0500d", i), 500);
        assert_true(malloc_usable_size(printed) >= 501);
        free(printed);
        char *line = (char *)malloc(4);
        size_t room = 4;
        FILE *file = fmemopen((void *)(uintptr_t) "a long line, longer than four bytes\n", 36, "r");
        assert_non_null(file);
        assert_int_equal(getline(&line, &room, file), 36);
        fclose(file);
        free(line);
    }
    free(realpath("/", NULL));
}

int main(void) {
    behaviour_require_allocator();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c23_names_release),
        cmocka_unit_test(names_come_from_one_file),
        cmocka_unit_test(cfree_is_free),
        cmocka_unit_test(second_names_are_the_same_heap),
        cmocka_unit_test(any_block_goes_to_any_release),
        cmocka_unit_test(blocks_cross_the_border_to_libc),
    };
    int failed = cmocka_run_group_tests_name("names", tests, NULL, NULL);
    behaviour_require_sound_heap();
    return failed;
}
