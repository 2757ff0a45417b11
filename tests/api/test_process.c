// What a process may be like around malloc: ended by misuse with a handler that allocates or flushes, without
// any file to open, with descriptors closed.
#include "refuse.h"

#include <execinfo.h>
#include <signal.h>
#include <sys/syscall.h>

enum { HANDLED = 42 };

// The wait status of a child that runs `body`; what it said on standard error is dropped.
static int status_of(void (*body)(void)) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int quiet = open("/dev/null", O_WRONLY | O_CLOEXEC);
        require(quiet >= 0 && dup2(quiet, STDERR_FILENO) >= 0);
        // The test library has handlers of its own.
        require(signal(SIGABRT, SIG_DFL) != SIG_ERR && signal(SIGSEGV, SIG_DFL) != SIG_ERR);
        alarm(300);
        body();
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

// ---- Misuse

// A crash reporter: takes a backtrace, allocates every kind of block, and ends in its own way.
static void report_crash(int number) {
    (void)number;
    void *frames[64];
    int count = backtrace(frames, 64);
    for (int round = 0; round < 500; round++) {
        size_t bytes = round % 50 == 0 ? 3 * MIB : (size_t)round * 20;
        char *block = (char *)malloc(bytes + 1);
        if (block != NULL) {
            block[bytes] = 1;
            if (round % 3 == 0) {
                free(block);
            }
        }
    }
    _exit(count > 2 ? HANDLED : 1);
}

static void install_crash_reporter(void) {
    void *frames[4];
    // The first call loads what the later ones need.
    require(backtrace(frames, 4) > 0);
    require(signal(SIGABRT, report_crash) != SIG_ERR);
}

static void free_of_the_stack(void) {
    char local[64] = {0};
    install_crash_reporter();
    free(opaque_pointer(local + 16));
}

// More blocks than a thread caches: when they go back to the heap, under its lock, is the latest
// moment to notice.
static void double_free(void) {
    enum { COUNT = 20000 };
    static void *blocks[COUNT];
    install_crash_reporter();
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = malloc(100);
    }
    free(blocks[0]);
    free(blocks[1]);
    for (int i = 0; i < COUNT; i++) {
        free(blocks[i]);
    }
}

static void *double_free_in_thread(void *unused) {
    (void)unused;
    double_free();
    return NULL;
}

static void double_free_beside_a_busy_thread(void) {
    pthread_t thread;
    start_thread(&thread, 0, double_free_in_thread, NULL);
    for (;;) {
        free(malloc(100));
        free(malloc(5000));
        free(malloc(300000));
    }
}

static void handler_of_sigabrt_may_allocate(void **state) {
    (void)state;
    void (*const misuses[])(void) = {free_of_the_stack, double_free,
                                     double_free_beside_a_busy_thread};
    for (size_t i = 0; i < sizeof misuses / sizeof misuses[0]; i++) {
        int status = status_of(misuses[i]);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != HANDLED) {
            fail_msg("misuse %zu: wait status %#x", i, (unsigned int)status);
        }
    }
}

// ---- Misuse beside forks

static void flush_and_end(int number) {
    (void)number;
    fflush(NULL);
    _exit(HANDLED);
}

static void *fork_without_end(void *argument) {
    for (;;) {
        const pid_t child = fork();
        if (child == 0) {
            _exit(0);
        }
        waitpid(child, NULL, 0);
    }
    return argument;
}

static int full_pipe[2];

static void *read_later(void *argument) {
    char bytes[4096];
    usleep(100000);
    while (read(full_pipe[0], bytes, sizeof bytes) > 0) {
    }
    return argument;
}

// What is said of it waits for a reader, and the heap's lock is held meanwhile: time for a fork that has the C library's list of
// streams to wait for that lock, as the handler then waits for the list.
static void double_free_beside_forks(void) {
    alarm(20);
    require(pipe(full_pipe) == 0 && dup2(full_pipe[1], STDERR_FILENO) >= 0);
    require(fcntl(full_pipe[1], F_SETFL, O_NONBLOCK) == 0);
    while (write(full_pipe[1], "0123456789abcdef", 16) > 0) {
    }
    require(fcntl(full_pipe[1], F_SETFL, 0) == 0);
    require(signal(SIGABRT, flush_and_end) != SIG_ERR);
    void *block = malloc(777);
    pthread_t threads[3];
    start_thread(&threads[0], 0, fork_without_end, NULL);
    start_thread(&threads[1], 0, fork_without_end, NULL);
    start_thread(&threads[2], 0, read_later, NULL);
    usleep(1000);
    free(block);
    free(opaque_pointer(block));
}

static void handler_of_sigabrt_may_flush_beside_forks(void **state) {
    (void)state;
    // It flushes what a child has of these.
    fflush(NULL);
    int status = status_of(double_free_beside_forks);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), HANDLED);
}

// ---- A handler that returns

static void handler_that_returns(int number) {
    (void)number;
    free(malloc(1000));
}

static void free_of_the_stack_with_a_handler_that_returns(void) {
    char local[64] = {0};
    require(signal(SIGABRT, handler_that_returns) != SIG_ERR);
    free(opaque_pointer(local + 16));
}

static void handler_of_sigabrt_cannot_save_the_process(void **state) {
    (void)state;
    int status = status_of(free_of_the_stack_with_a_handler_that_returns);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
}

// ---- Without files

static void refuse_every_file(void) {
    refuse_calls((const unsigned[]){SYS_openat, SYS_readlinkat, SYS_faccessat}, ENOENT);
    require(open("/proc/self/maps", O_RDONLY | O_CLOEXEC) == -1 && errno == ENOENT);
}

static void *churn(void *argument) {
    uint64_t seed = (uint64_t)(uintptr_t)argument;
    void *kept[64] = {NULL};
    for (int i = 0; i < 20000; i++) {
        size_t at = random_below(&seed, 64);
        free(kept[at]);
        kept[at] = malloc(random_log_size(&seed, 300000));
        require(kept[at] != NULL);
    }
    for (int i = 0; i < 64; i++) {
        free(kept[i]);
    }
    return NULL;
}

// As in a container without /proc: nothing of it is needed.
static void work_without_files(void) {
    refuse_every_file();
    pthread_t threads[3];
    for (uintptr_t i = 0; i < 3; i++) {
        start_thread(&threads[i], 0, churn, (void *)(i + 1));
    }
    for (int i = 0; i < 3; i++) {
        require(pthread_join(threads[i], NULL) == 0);
    }
    struct mallinfo2 info = mallinfo2();
    require(info.arena >= info.uordblks);
    malloc_stats();
    malloc_trim(0);
    behaviour_require_sound_heap();
}

static void misuse_without_files(void) {
    char local[64] = {0};
    refuse_every_file();
    free(opaque_pointer(local + 16));
}

static void process_without_proc(void **state) {
    (void)state;
    assert_int_equal(status_of(work_without_files), 0);
    int status = status_of(misuse_without_files);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
}

// ---- Without descriptors

static void work_with_closed_descriptors(void) {
    for (int descriptor = 0; descriptor < 1024; descriptor++) {
        close(descriptor);
    }
    churn((void *)(uintptr_t)9);
    malloc_stats();
    // What a program opens now is its own: nobody writes to it or closes it.
    int first = open("/dev/null", O_RDWR | O_CLOEXEC);
    require(first == 0);
    churn((void *)(uintptr_t)10);
    require(fcntl(first, F_GETFD) == FD_CLOEXEC);
    behaviour_require_sound_heap();
}

static void process_with_closed_descriptors(void **state) {
    (void)state;
    assert_int_equal(status_of(work_with_closed_descriptors), 0);
}

int main(void) {
    behaviour_require_allocator();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(handler_of_sigabrt_may_allocate),
        cmocka_unit_test(handler_of_sigabrt_may_flush_beside_forks),
        cmocka_unit_test(handler_of_sigabrt_cannot_save_the_process),
        cmocka_unit_test(process_without_proc),
        cmocka_unit_test(process_with_closed_descriptors),
    };
    int failed = cmocka_run_group_tests_name("process", tests, NULL, NULL);
    behaviour_require_sound_heap();
    return failed;
}
