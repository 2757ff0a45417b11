// Where hakmem means to differ from glibc (docs/CONFORMANCE.md lists why): each case states both
// sides, so that neither can change unnoticed.
#include "api.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>

// Of hardened mode: all but the request is checked.
static size_t hakmem_usable(size_t asked, size_t class_bytes) {
    const size_t least = asked == 0 ? 1 : asked;
    return in_hardened_mode() ? least : class_bytes;
}

static void usable_sizes_are_the_classes(void **state) {
    (void)state;
    static const size_t asked[] = {0, 1, 24, 25, 40, 41, 100, 1000};
    static const size_t glibc[] = {24, 24, 24, 40, 40, 56, 104, 1000};
    static const size_t hakmem[] = {16, 16, 32, 32, 48, 48, 112, 1024};
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        void *block = malloc(asked[i]);
        assert_non_null(block);
        assert_int_equal(malloc_usable_size(block),
                         behaviour_on_hakmem() ? hakmem_usable(asked[i], hakmem[i]) : glibc[i]);
        free(block);
    }
}

// glibc fills what it hands out with the complement of the value.
static void mallopt_changes_nothing(void **state) {
    (void)state;
    assert_int_equal(mallopt(M_PERTURB, 0x5a), 1);
    unsigned char *block = (unsigned char *)malloc(20 * KIB);
    assert_non_null(block);
    size_t filled = 0;
    for (size_t at = 0; at < 20 * KIB; at++) {
        filled += block[at] == 0xa5;
    }
    assert_int_equal(filled, behaviour_on_hakmem() ? 0 : 20 * KIB);
    assert_int_equal(mallopt(M_PERTURB, 0), 1);
    free(block);
}

static void blocks_with_a_mapping_of_their_own(void **state) {
    (void)state;
    static const size_t sizes[] = {1 << 20, 3 << 20};
    assert_int_equal(mallopt(M_MMAP_THRESHOLD, 512 * 1024), 1);
    for (size_t i = 0; i < 2; i++) {
        size_t before = mallinfo2().hblks;
        void *block = malloc(sizes[i]);
        assert_non_null(block);
        size_t more = mallinfo2().hblks - before;
        assert_int_equal(more, behaviour_on_hakmem() && sizes[i] <= 2 * MIB ? 0 : 1);
        free(block);
    }
}

// ---- A handler of SIGABRT that does not return, as test runners have

static sigjmp_buf before_misuse;

static void jump_out(int number) {
    (void)number;
    siglongjmp(before_misuse, 1);
}

static void use_heap(void) {
    static void *blocks[2000];
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        blocks[i] = malloc(i);
        require(blocks[i] != NULL);
    }
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        free(blocks[i]);
    }
}

static void misuse_and_go_on(void) {
    char local[64] = {0};
    static volatile int noticed;
    require(signal(SIGABRT, jump_out) != SIG_ERR);
    for (volatile int round = 0; round < 3; round++) {
        if (sigsetjmp(before_misuse, 1) == 0) {
            free(opaque_pointer(local + 16));
        } else {
            noticed++;
        }
        use_heap();
    }
    behaviour_require_sound_heap();
    _exit(noticed);
}

static void of_misuse_behind_such_a_handler_nothing_is_told(void **state) {
    (void)state;
    const pid_t child = fork();
    if (child == 0) {
        misuse_and_go_on();
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), behaviour_on_hakmem() ? 1 : 3);
}

// One after the other they are likely to have one stack, and with it one thread pointer.
enum { THREADS = 12 };

static void *free_what_is_no_block(void *argument) {
    unsigned *noticed = (unsigned *)argument;
    char local[64] = {0};
    if (sigsetjmp(before_misuse, 1) == 0) {
        free(opaque_pointer(local + 16));
    } else {
        (*noticed)++;
    }
    return NULL;
}

static void of_the_next_threads_it_is(void **state) {
    (void)state;
    const pid_t child = fork();
    if (child == 0) {
        unsigned noticed = 0;
        require(signal(SIGABRT, jump_out) != SIG_ERR);
        for (unsigned i = 0; i < THREADS; i++) {
            pthread_t thread;
            start_thread(&thread, 256 * KIB, free_what_is_no_block, &noticed);
            require(pthread_join(thread, NULL) == 0);
        }
        behaviour_require_sound_heap();
        _exit((int)noticed);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), THREADS);
}

int main(void) {
    behaviour_require_allocator();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(usable_sizes_are_the_classes),
        cmocka_unit_test(mallopt_changes_nothing),
        cmocka_unit_test(blocks_with_a_mapping_of_their_own),
        cmocka_unit_test(of_misuse_behind_such_a_handler_nothing_is_told),
        cmocka_unit_test(of_the_next_threads_it_is),
    };
    int failed = cmocka_run_group_tests_name("differences", tests, NULL, NULL);
    behaviour_require_sound_heap();
    return failed;
}
