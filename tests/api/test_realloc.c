// realloc and reallocarray: NULL, zero, contents across every border in both directions.
#include "api.h"

#include <sys/mman.h>
#include <unistd.h>

static void realloc_of_null_allocates(void **state) {
    (void)state;
    static const size_t sizes[] = {1, 16, 100, 5000, 70000, 300000, 5000000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        void *block = realloc(NULL, sizes[i]);
        assert_non_null(block);
        assert_true(malloc_usable_size(block) >= sizes[i]);
        memset(block, 1, sizes[i]);
        free(block);
        block = reallocarray(NULL, sizes[i], 2);
        assert_non_null(block);
        assert_true(malloc_usable_size(block) >= 2 * sizes[i]);
        free(block);
    }
}

// glibc frees the block and returns NULL; errno stays.
static void realloc_to_zero_frees(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 1, 100, 5000, 70000, 300000, 5 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t first = 0;
        for (int round = 0; round < 200; round++) {
            void *block = malloc(sizes[i]);
            assert_non_null(block);
            memset(block, 1, malloc_usable_size(block));
            errno = 77;
            assert_null(realloc(block, opaque(0)));
            assert_int_equal(errno, 77);
            block = malloc(sizes[i]);
            assert_non_null(block);
            memset(block, 1, malloc_usable_size(block));
            assert_null(reallocarray(block, opaque(0), 8));
            block = malloc(sizes[i]);
            assert_non_null(block);
            memset(block, 1, malloc_usable_size(block));
            assert_null(reallocarray(block, 8, opaque(0)));
            if (round == 20) {
                first = rss_bytes();
            }
        }
        // Freed indeed: 540 more blocks of this size would show.
        if (sizes[i] >= 5000) {
            assert_true(rss_bytes() < first + 100 * sizes[i] + MIB);
        }
    }
}

static void same_size_keeps_contents(void **state) {
    (void)state;
    for (size_t bytes = 1; bytes < 6 * MIB; bytes = bytes * 3 / 2 + 1) {
        void *block = malloc(bytes);
        assert_non_null(block);
        pattern_fill(block, bytes, bytes);
        for (int i = 0; i < 3; i++) {
            block = realloc(block, bytes);
            assert_non_null(block);
            assert_int_equal(pattern_differs(block, bytes, bytes), bytes);
        }
        free(block);
    }
}

static void usable_size_is_granted_in_place(void **state) {
    (void)state;
    for (size_t bytes = 1; bytes < 6 * MIB; bytes = bytes * 5 / 4 + 1) {
        void *block = malloc(bytes);
        assert_non_null(block);
        size_t usable = malloc_usable_size(block);
        pattern_fill(block, usable, bytes);
        void *again = realloc(block, usable);
        assert_non_null(again);
        assert_int_equal(pattern_differs(again, usable, bytes), usable);
        free(again);
    }
}

struct walk {
    void *block;
    size_t bytes;
    uint64_t key;
};

static void resize_and_check(size_t bytes, void *context) {
    struct walk *walk = (struct walk *)context;
    void *block = realloc(walk->block, bytes);
    assert_non_null(block);
    assert_true(aligned_to(block, 16));
    size_t kept = bytes < walk->bytes ? bytes : walk->bytes;
    size_t matched = pattern_differs(block, kept, walk->key);
    if (matched != kept) {
        fail_msg("realloc from %zu to %zu bytes lost byte %zu", walk->bytes, bytes, matched);
    }
    assert_true(malloc_usable_size(block) >= bytes);
    walk->key++;
    pattern_fill(block, bytes, walk->key);
    walk->block = block;
    walk->bytes = bytes;
}

static void contents_kept_growing_over_every_border(void **state) {
    (void)state;
    struct walk walk = {NULL, 0, 1};
    for_border_sizes(12 * MIB, resize_and_check, &walk);
    free(walk.block);
}

struct sizes {
    size_t bytes[2048];
    size_t count;
};

static void collect(size_t bytes, void *context) {
    struct sizes *sizes = (struct sizes *)context;
    sizes->bytes[sizes->count++] = bytes;
}

static void contents_kept_shrinking_over_every_border(void **state) {
    (void)state;
    static struct sizes sizes;
    for_border_sizes(12 * MIB, collect, &sizes);
    struct walk walk = {NULL, 0, 1};
    for (size_t i = sizes.count; i > 0; i--) {
        resize_and_check(sizes.bytes[i - 1], &walk);
    }
    free(walk.block);
}

// From each border to a far one: small to large, large to huge and back.
static void contents_kept_over_far_jumps(void **state) {
    (void)state;
    static const size_t far[] = {1,       16,     100,    1000,    1025,    8200,          30000,
                                 65536,   65537,  200000, 1 << 20, 2 << 20, (2 << 20) + 1, 3 << 20,
                                 4 << 20, 9 << 20};
    enum { COUNT = sizeof far / sizeof far[0] };
    for (int from = 0; from < COUNT; from++) {
        for (int to = 0; to < COUNT; to++) {
            struct walk walk = {NULL, 0, (uint64_t)(from * COUNT + to)};
            resize_and_check(far[from], &walk);
            resize_and_check(far[to], &walk);
            resize_and_check(far[from], &walk);
            free(walk.block);
        }
    }
}

// Neighbours must survive a block that grows and shrinks among them.
static void neighbours_survive_realloc(void **state) {
    (void)state;
    enum { COUNT = 400 };
    static struct walk blocks[COUNT];
    uint64_t seed = 99;
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = (struct walk){NULL, 0, (uint64_t)i << 32};
        resize_and_check(random_log_size(&seed, 256 * KIB), &blocks[i]);
    }
    for (int round = 0; round < 20000; round++) {
        struct walk *walk = &blocks[random_below(&seed, COUNT)];
        resize_and_check(random_log_size(&seed, round % 50 == 0 ? 4 * MIB : 32 * KIB), walk);
    }
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(pattern_differs(blocks[i].block, blocks[i].bytes, blocks[i].key),
                         blocks[i].bytes);
        free(blocks[i].block);
        blocks[i].block = NULL;
    }
}

// Aligned blocks may lose their alignment, never their contents.
static void aligned_blocks_keep_contents(void **state) {
    (void)state;
    for (size_t alignment = 16; alignment <= 8 * MIB; alignment *= 2) {
        for (size_t bytes = 1; bytes < 3 * MIB; bytes = bytes * 7 + 3) {
            struct walk walk = {NULL, bytes, alignment};
            assert_int_equal(posix_memalign(&walk.block, alignment, bytes), 0);
            pattern_fill(walk.block, bytes, walk.key);
            resize_and_check(bytes * 2 + 1, &walk);
            resize_and_check(bytes / 2 + 1, &walk);
            resize_and_check(bytes + 70000, &walk);
            free(walk.block);
        }
    }
}

static void a_growing_buffer_of_100_mib(void **state) {
    (void)state;
    size_t bytes = 1000;
    char *block = (char *)malloc(bytes);
    assert_non_null(block);
    memset(block, 'x', bytes);
    while (bytes < 100 * MIB) {
        size_t next = bytes + bytes / 2;
        block = (char *)realloc(block, next);
        assert_non_null(block);
        // Sampled: every page of the old part must still say what it said.
        for (size_t at = 0; at < bytes; at += 4096) {
            assert_int_equal(block[at], 'x');
        }
        assert_int_equal(block[bytes - 1], 'x');
        for (size_t at = bytes; at < next; at += 1024) {
            block[at] = 'x';
        }
        for (size_t at = (bytes + 4095) / 4096 * 4096; at < next; at += 4096) {
            block[at] = 'x';
        }
        block[next - 1] = 'x';
        bytes = next;
    }
    free(block);
}

// A program may advise or lock a part of a large block; the system then has the block in pieces that the
// allocator does not know of. NumPy asks for huge pages this way.
static void divided_blocks_are_reused_and_grow(void **state) {
    (void)state;
    enum { BYTES = 8 << 20 };
    for (unsigned round = 0; round < 4; round++) {
        char *divided = malloc(BYTES);
        char *plain = malloc(BYTES / 2);
        assert_non_null(divided);
        assert_non_null(plain);
        memset(divided, 'd', BYTES);
        memset(plain, 'p', BYTES / 2);
        char *part = divided + 4096 + round * 65536;
        part += -(uintptr_t)part % 65536;
        assert_int_equal(madvise(part, 1 << 20, MADV_DONTFORK), 0);
        char *grown = realloc(divided, 3 * BYTES);
        assert_non_null(grown);
        for (size_t at = 0; at < BYTES; at += 512) {
            assert_int_equal(grown[at], 'd');
        }
        memset(grown, 'g', 3 * BYTES);
        free(grown);
        free(plain);
        // Of more than any of them has.
        char *larger = malloc(3 * BYTES + BYTES / 4);
        assert_non_null(larger);
        memset(larger, 'l', 3 * BYTES + BYTES / 4);
        free(larger);
    }
}

// The system may have divided the mapping for it.
static void protected_blocks_are_reused(void **state) {
    (void)state;
    static const size_t sizes[] = {200000, 500000, 8 << 20, 40 << 20};
    const size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (unsigned round = 0; round < 3; round++) {
            char *block = malloc(sizes[i]);
            assert_non_null(block);
            memset(block, 'b', sizes[i]);
            char *part = block + -(uintptr_t)block % page_bytes;
            const size_t bytes = (size_t)(block + sizes[i] - part) / 2 / page_bytes * page_bytes;
            assert_int_equal(mprotect(part, bytes, PROT_NONE), 0);
            assert_int_equal(mprotect(part, bytes, PROT_READ | PROT_WRITE), 0);
            assert_int_equal(block[sizes[i] / 4], 'b');
            free(block);
            block = malloc(sizes[i]);
            assert_non_null(block);
            memset(block, 'c', sizes[i]);
            free(block);
        }
    }
}

int main(void) {
    behaviour_require_allocator();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(realloc_of_null_allocates),
        cmocka_unit_test(realloc_to_zero_frees),
        cmocka_unit_test(same_size_keeps_contents),
        cmocka_unit_test(usable_size_is_granted_in_place),
        cmocka_unit_test(contents_kept_growing_over_every_border),
        cmocka_unit_test(contents_kept_shrinking_over_every_border),
        cmocka_unit_test(contents_kept_over_far_jumps),
        cmocka_unit_test(neighbours_survive_realloc),
        cmocka_unit_test(aligned_blocks_keep_contents),
        cmocka_unit_test(a_growing_buffer_of_100_mib),
        cmocka_unit_test(divided_blocks_are_reused_and_grow),
        cmocka_unit_test(protected_blocks_are_reused),
    };
    int failed = cmocka_run_group_tests_name("realloc", tests, NULL, NULL);
    behaviour_require_sound_heap();
    return failed;
}
