// errno: a success leaves it alone, in every entry point; free leaves it alone also when the system
// refuses to take memory back.
#include "refuse.h"

static const size_t sizes[] = {0,     1,      24,      1000,    4096,          20000,   65536,
                               65537, 300000, 1 << 20, 2 << 20, (2 << 20) + 1, 5 << 20, 30 << 20};
#define SIZE_COUNT (sizeof sizes / sizeof sizes[0])

static void success_leaves_errno(void **state) {
    (void)state;
    for (int round = 0; round < 10; round++) {
        for (size_t s = 0; s < SIZE_COUNT; s++) {
            size_t bytes = sizes[s];
            void *blocks[9];
            errno = 4711;
            blocks[0] = malloc(bytes);
            blocks[1] = calloc(1, bytes);
            blocks[2] = realloc(NULL, bytes);
            blocks[3] = reallocarray(NULL, 1, bytes);
            blocks[4] = memalign(64, bytes);
            blocks[5] = aligned_alloc(4096, bytes);
            assert_int_equal(posix_memalign(&blocks[6], 128, bytes), 0);
            blocks[7] = valloc(bytes);
            blocks[8] = pvalloc(bytes);
            for (int i = 0; i < 9; i++) {
                assert_non_null(blocks[i]);
                assert_true(malloc_usable_size(blocks[i]) >= bytes);
            }
            blocks[0] = realloc(blocks[0], bytes * 2 + 1);
            blocks[1] = realloc(blocks[1], bytes / 3 + 1);
            assert_true(blocks[0] != NULL && blocks[1] != NULL);
            assert_null(realloc(blocks[2], opaque(0)));
            blocks[2] = NULL;
            assert_int_equal(errno, 4711);
            for (int i = 0; i < 9; i++) {
                free(blocks[i]);
            }
            assert_int_equal(errno, 4711);
        }
        if (round % 4 == 0) {
            malloc_trim(0);
        }
    }
}

// POSIX has the error in the result; glibc has it in errno too where memory is wanting, and programs
// rely on that.
static void posix_memalign_sets_errno_for_enomem_alone(void **state) {
    (void)state;
    void *block = NULL;
    errno = 4711;
    assert_int_equal(posix_memalign(&block, 64, opaque(SIZE_MAX)), ENOMEM);
    assert_int_equal(errno, ENOMEM);
    errno = 4711;
    assert_int_equal(posix_memalign(&block, 4096, opaque((size_t)1 << 48)), ENOMEM);
    assert_int_equal(errno, ENOMEM);
    errno = 4711;
    assert_int_equal(posix_memalign(&block, 3, 1), EINVAL);
    assert_int_equal(errno, 4711);
}

static void refuse_to_take_memory_back(void) {
    refuse_calls((const unsigned[]){SYS_madvise, SYS_munmap, SYS_mremap}, ENOMEM);
    // The filter holds.
    void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(page != MAP_FAILED && munmap(page, 4096) == -1 && errno == ENOMEM);
}

// A mapping whose surplus cannot be cut off may be refused; most requests need none.
static bool may_be_refused(const void *block) {
    require(block != NULL || errno == ENOMEM);
    return block != NULL;
}

static size_t shown_of(size_t bytes) {
    return bytes < 4096 ? bytes : 4096;
}

static void work_with_nothing_given_back(void) {
    size_t granted = 0;
    enum { COUNT = 100 };
    static char *blocks[COUNT];
    refuse_to_take_memory_back();
    for (int round = 0; round < 2; round++) {
        for (size_t s = 0; s < SIZE_COUNT; s++) {
            int count = sizes[s] > MIB ? 4 : COUNT;
            for (int i = 0; i < count; i++) {
                blocks[i] = (char *)malloc(sizes[s]);
                granted += may_be_refused(blocks[i]);
                pattern_fill(blocks[i], blocks[i] == NULL ? 0 : shown_of(sizes[s]), (uint64_t)i);
            }
            for (int i = 0; i < count; i++) {
                size_t shown = blocks[i] == NULL ? 0 : shown_of(sizes[s]);
                require(pattern_differs(blocks[i], shown, (uint64_t)i) == shown);
                errno = 90 + i;
                if (round == 1 && blocks[i] != NULL) {
                    require(realloc(blocks[i], 0) == NULL);
                } else {
                    free(blocks[i]);
                }
                require(errno == 90 + i);
            }
            // What could not be given back is still zero when calloc says so.
            char *zeroed = (char *)calloc(1, sizes[s] + 1);
            if (may_be_refused(zeroed)) {
                require(all_zero(zeroed, sizes[s] + 1));
                memset(zeroed, 1, sizes[s] + 1);
            }
            errno = 5;
            free(zeroed);
            require(errno == 5);
        }
        malloc_trim(0);
    }
    require(granted > 1000);
    // realloc of a mapping that can neither grow nor move by mremap copies.
    char *grown = (char *)malloc(3 << 20);
    if (may_be_refused(grown)) {
        pattern_fill(grown, 3 << 20, 8);
        errno = 6;
        char *longer = (char *)realloc(grown, 50 << 20);
        may_be_refused(longer);
        longer = longer == NULL ? grown : longer;
        require(pattern_differs(longer, 3 << 20, 8) == 3 << 20);
        free(longer);
    }
    behaviour_require_sound_heap();
}

static void run_in_child(void (*body)(void)) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        body();
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void free_leaves_errno_when_the_system_refuses(void **state) {
    (void)state;
    run_in_child(work_with_nothing_given_back);
}

int main(void) {
    behaviour_require_allocator();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(success_leaves_errno),
        cmocka_unit_test(posix_memalign_sets_errno_for_enomem_alone),
        cmocka_unit_test(free_leaves_errno_when_the_system_refuses),
    };
    int failed = cmocka_run_group_tests_name("errno", tests, NULL, NULL);
    behaviour_require_sound_heap();
    return failed;
}
