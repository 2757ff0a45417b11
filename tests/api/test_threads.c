// Threads: any entry point may be a thread's first, or its last; a cancelled thread is cancelled
// nowhere inside; what one thread allocated any other releases by any name.
#include "api.h"

static void *common_block;

static void first_malloc(void) {
    void *block = malloc(100);
    assert_non_null(block);
    memset(block, 1, 100);
    free(block);
}

static void first_calloc(void) {
    void *block = calloc(3, 100);
    assert_non_null(block);
    assert_true(all_zero(block, 300));
    free(block);
}

static void first_realloc_of_null(void) {
    free(realloc(NULL, 5000));
}

static void first_realloc_of_a_foreign_block(void) {
    common_block = realloc(common_block, 7000);
    assert_non_null(common_block);
    assert_int_equal(pattern_differs(common_block, 50, 3), 50);
}

static void first_shrink_of_a_foreign_block(void) {
    common_block = realloc(common_block, 50);
    assert_non_null(common_block);
    assert_int_equal(pattern_differs(common_block, 50, 3), 50);
}

static void first_realloc_to_zero(void) {
    assert_null(realloc(common_block, opaque(0)));
    common_block = malloc(50);
    pattern_fill(common_block, 50, 3);
}

static void first_free_of_a_foreign_block(void) {
    free(common_block);
    common_block = malloc(50);
    pattern_fill(common_block, 50, 3);
}

static void first_free_of_null(void) {
    free(NULL);
}

static void first_usable_size(void) {
    assert_true(malloc_usable_size(common_block) >= 50);
    assert_int_equal(malloc_usable_size(NULL), 0);
}

static void first_aligned(void) {
    void *block = aligned_alloc(4096, 100);
    assert_true(block != NULL && aligned_to(block, 4096));
    free(block);
}

static void first_posix_memalign(void) {
    void *block = NULL;
    assert_int_equal(posix_memalign(&block, 1 << 20, 3 << 20), 0);
    assert_true(aligned_to(block, 1 << 20));
    free(block);
}

static void first_page_functions(void) {
    free(valloc(100));
    free(pvalloc(100));
}

static void first_huge(void) {
    free(malloc(30 << 20));
}

static void first_refusal(void) {
    errno = 0;
    assert_null(malloc(opaque(SIZE_MAX)));
    assert_int_equal(errno, ENOMEM);
}

static void first_trim(void) {
    int trimmed = malloc_trim(0);
    assert_true(trimmed == 0 || trimmed == 1);
}

static void first_mallinfo(void) {
    struct mallinfo2 info = mallinfo2();
    assert_true(info.arena >= info.uordblks);
}

static void first_mallopt(void) {
    assert_int_equal(mallopt(M_MMAP_MAX, 65536), 1);
}

static void (*const firsts[])(void) = {
    first_malloc,
    first_calloc,
    first_realloc_of_null,
    first_realloc_of_a_foreign_block,
    first_shrink_of_a_foreign_block,
    first_realloc_to_zero,
    first_free_of_a_foreign_block,
    first_free_of_null,
    first_usable_size,
    first_aligned,
    first_posix_memalign,
    first_page_functions,
    first_huge,
    first_refusal,
    first_trim,
    first_mallinfo,
    first_mallopt,
};

static void *call_it(void *argument) {
    void (*const *first)(void) = (void (*const *)(void))argument;
    (*first)();
    return NULL;
}

static void any_call_may_be_the_first_of_a_thread(void **state) {
    (void)state;
    common_block = malloc(50);
    pattern_fill(common_block, 50, 3);
    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < sizeof firsts / sizeof firsts[0]; i++) {
            pthread_t thread;
            start_thread(&thread, 0, call_it, (void *)(uintptr_t)&firsts[i]);
            assert_int_equal(pthread_join(thread, NULL), 0);
        }
    }
    free(common_block);
}

// ---- Cancellation

// With a cancellation pending, every call completes: none of them is a cancellation point, or a lock
// would stay held, a block be lost.
static void *call_with_cancellation_pending(void *argument) {
    volatile int *done = (volatile int *)argument;
    pthread_cancel(pthread_self());
    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < sizeof firsts / sizeof firsts[0]; i++) {
            firsts[i]();
            (*done)++;
        }
        malloc_stats();
    }
    *done = -1;
    pthread_testcancel();
    return NULL;
}

static void no_call_is_a_cancellation_point(void **state) {
    (void)state;
    int quiet = open("/dev/null", O_WRONLY | O_CLOEXEC);
    int saved = dup(STDERR_FILENO);
    assert_true(quiet >= 0 && saved >= 0 && dup2(quiet, STDERR_FILENO) >= 0);
    common_block = malloc(50);
    pattern_fill(common_block, 50, 3);
    volatile int done = 0;
    pthread_t thread;
    void *result = NULL;
    start_thread(&thread, 0, call_with_cancellation_pending, (void *)(uintptr_t)&done);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    close(saved);
    close(quiet);
    assert_int_equal(done, -1);
    assert_ptr_equal(result, PTHREAD_CANCELED);
    free(common_block);
    first_malloc();
}

// ---- Other threads' blocks

enum { BLOCK_COUNT = 900 };
static void *handed[BLOCK_COUNT];
static size_t asked_bytes[BLOCK_COUNT];

static void *allocate_by_every_name(void *unused) {
    (void)unused;
    uint64_t seed = 5;
    for (int i = 0; i < BLOCK_COUNT; i++) {
        size_t bytes = random_log_size(&seed, i % 31 == 0 ? 3 * MIB : 9000);
        void **at = &handed[i];
        asked_bytes[i] = bytes;
        switch (i % 9) {
        case 0:
            *at = malloc(bytes);
            break;
        case 1:
            *at = calloc(1, bytes);
            break;
        case 2:
            *at = realloc(NULL, bytes);
            break;
        case 3:
            *at = reallocarray(NULL, bytes, 1);
            break;
        case 4:
            *at = memalign(256, bytes);
            break;
        case 5:
            *at = aligned_alloc(64, bytes);
            break;
        case 6:
            assert_int_equal(posix_memalign(at, 8192, bytes), 0);
            break;
        case 7:
            *at = valloc(bytes);
            break;
        default:
            *at = pvalloc(bytes);
        }
        assert_non_null(*at);
        pattern_fill(*at, malloc_usable_size(*at), (uint64_t)i);
    }
    return NULL;
}

// By the name that C23 has for a block of that kind, where there is one and the allocator has it.
static void release_with_its_size(int i) {
    if (free_sized != NULL && i % 9 < 4) {
        free_sized(handed[i], asked_bytes[i]);
    } else if (free_aligned_sized != NULL && i % 9 == 5) {
        free_aligned_sized(handed[i], 64, asked_bytes[i]);
    } else {
        free(handed[i]);
    }
}

static void *release_by_every_name(void *unused) {
    (void)unused;
    for (int i = 0; i < BLOCK_COUNT; i++) {
        size_t usable = malloc_usable_size(handed[i]);
        assert_int_equal(pattern_differs(handed[i], usable, (uint64_t)i), usable);
        void *moved;
        // Each name in turn with each of the nine above.
        switch (i % 5) {
        case 0:
            free(handed[i]);
            break;
        case 1:
            assert_null(realloc(handed[i], opaque(0)));
            break;
        case 2:
            moved = realloc(handed[i], usable * 2);
            assert_non_null(moved);
            assert_int_equal(pattern_differs(moved, usable, (uint64_t)i), usable);
            free(moved);
            break;
        case 3:
            moved = reallocarray(handed[i], usable, 2);
            assert_non_null(moved);
            assert_int_equal(pattern_differs(moved, usable, (uint64_t)i), usable);
            free(reallocarray(moved, 1, 10));
            break;
        default:
            release_with_its_size(i);
        }
    }
    return NULL;
}

// The thread that allocated has ended, and so has its turn to take them back.
static void blocks_outlive_their_thread(void **state) {
    (void)state;
    size_t first = 0;
    size_t live = 0;
    for (int round = 0; round < 20; round++) {
        pthread_t thread;
        start_thread(&thread, 0, allocate_by_every_name, NULL);
        assert_int_equal(pthread_join(thread, NULL), 0);
        // By another one, which may have the heap of the one that ended, and by this one, which has its own.
        if (round % 2 == 0) {
            start_thread(&thread, 0, release_by_every_name, NULL);
            assert_int_equal(pthread_join(thread, NULL), 0);
        } else {
            release_by_every_name(NULL);
        }
        malloc_trim(0);
        if (round == 5) {
            first = rss_bytes();
            live = live_bytes();
        }
    }
    assert_true(rss_bytes() < first + 16 * MIB);
    assert_int_equal(live_bytes(), live);
}

// Figures are of the whole process, not of the calling thread.
static void mallinfo2_counts_other_threads(void **state) {
    (void)state;
    struct mallinfo2 before = mallinfo2();
    pthread_t thread;
    start_thread(&thread, 0, allocate_by_every_name, NULL);
    assert_int_equal(pthread_join(thread, NULL), 0);
    size_t live = 0;
    for (int i = 0; i < BLOCK_COUNT; i++) {
        live += malloc_usable_size(handed[i]);
    }
    struct mallinfo2 during = mallinfo2();
    assert_true(during.uordblks + during.hblkhd >= before.uordblks + before.hblkhd + live);
    start_thread(&thread, 0, release_by_every_name, NULL);
    assert_int_equal(pthread_join(thread, NULL), 0);
    struct mallinfo2 after = mallinfo2();
    assert_true(after.uordblks + after.hblkhd + live / 2 < during.uordblks + during.hblkhd);
}

enum { MANY = 20000, MANY_BYTES = 1000 };
static void *many[MANY];

static void *allocate_many(void *argument) {
    for (int i = 0; i < MANY; i++) {
        many[i] = malloc(MANY_BYTES);
        assert_non_null(many[i]);
    }
    return argument;
}

// Whoever had them has ended: what another thread frees of them waits for nobody, and is free all the same.
static void mallinfo2_counts_what_another_thread_freed(void **state) {
    (void)state;
    const size_t before = mallinfo2().uordblks;
    pthread_t thread;
    start_thread(&thread, 0, allocate_many, NULL);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(mallinfo2().uordblks >= before + MANY * (size_t)MANY_BYTES);
    for (int i = 0; i < MANY; i++) {
        free(many[i]);
    }
    // The freeing thread's cache has some.
    assert_true(mallinfo2().uordblks < before + MANY * (size_t)MANY_BYTES / 10);
}

int main(void) {
    behaviour_require_allocator();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_call_may_be_the_first_of_a_thread),
        cmocka_unit_test(no_call_is_a_cancellation_point),
        cmocka_unit_test(blocks_outlive_their_thread),
        cmocka_unit_test(mallinfo2_counts_other_threads),
        cmocka_unit_test(mallinfo2_counts_what_another_thread_freed),
    };
    int failed = cmocka_run_group_tests_name("threads", tests, NULL, NULL);
    behaviour_require_sound_heap();
    return failed;
}
