#include "isolate.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TEST_SECONDS_MAX 600
#define SCENARIO_SECONDS_MAX 300
#define REQUIRE_STATUS 101

// Options come from the tests alone.
static void clear_options(void) {
    extern char **environ;
    for (size_t i = 0; environ != NULL && environ[i] != NULL;) {
        char name[256];
        const char *end = strchr(environ[i], '=');
        const size_t length = end == NULL ? 0 : (size_t)(end - environ[i]);
        if (strncmp(environ[i], "HAKMEM_", 7) == 0 && length < sizeof name) {
            memcpy(name, environ[i], length);
            name[length] = '\0';
            unsetenv(name);
        } else {
            i++;
        }
    }
}

static int run_here(const struct CMUnitTest *test) {
    return _cmocka_run_group_tests(test->name, test, 1, NULL, NULL);
}

static int wait_for(pid_t child) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
}

static bool run_in_child(const struct CMUnitTest *test) {
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        alarm(TEST_SECONDS_MAX);
        const int failed = run_here(test);
        fflush(NULL);
        _exit(failed != 0);
    }
    const int status = child < 0 ? -1 : wait_for(child);
    if (status != 0 && !(WIFEXITED(status) && WEXITSTATUS(status) == 1)) {
        fprintf(stderr, "%s: ended with wait status %#x\n", test->name, (unsigned)status);
    }
    return status == 0;
}

int run_isolated(int argument_count, char **arguments, const struct CMUnitTest *tests,
                 size_t count) {
    clear_options();
    int failed = 0;
    size_t matched = 0;
    for (size_t i = 0; i < count; i++) {
        if (argument_count < 2) {
            failed += run_in_child(&tests[i]) ? 0 : 1;
        } else if (strcmp(arguments[1], tests[i].name) == 0) {
            failed += run_here(&tests[i]);
        } else {
            continue;
        }
        matched++;
    }
    if (matched == 0) {
        fputs("no test of this name\n", stderr);
        return 1;
    }
    printf("%d of %zu tests failed\n", failed, matched);
    return failed;
}

static int status_of_child(int (*scenario)(const void *context), const void *context, bool quiet) {
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        alarm(SCENARIO_SECONDS_MAX);
        signal(SIGABRT, SIG_DFL);
        if (quiet) {
            dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
        }
        _exit(scenario(context));
    }
    assert_true(child > 0);
    return wait_for(child);
}

int run_scenario(int (*scenario)(const void *context), const void *context) {
    const int status = status_of_child(scenario, context, false);
    if (!WIFEXITED(status) || WEXITSTATUS(status) >= 100) {
        fail_msg("the scenario ended with wait status %#x", (unsigned)status);
    }
    return WEXITSTATUS(status);
}

void expect_failure(int (*scenario)(const void *context), const void *context) {
    const int status = status_of_child(scenario, context, true);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), REQUIRE_STATUS);
}

void expect_abort(int (*scenario)(const void *context)) {
    const int status = status_of_child(scenario, NULL, true);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
}

void require_that(bool holds, const char *file, int line, const char *condition) {
    if (!holds) {
        fprintf(stderr, "%s:%d: not so: %s\n", file, line, condition);
        _exit(REQUIRE_STATUS);
    }
}

uint64_t test_seed(void) {
    const char *given = getenv("TEST_SEED");
    uint64_t seed;
    if (given != NULL) {
        seed = strtoull(given, NULL, 0);
    } else {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        seed = (uint64_t)now.tv_nsec * 1000003u + (uint64_t)now.tv_sec;
    }
    seed = seed == 0 ? 1 : seed;
    print_message("TEST_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

static char said[64 * 1024];
static int real_stderr = -1;
static int capture = -1;

void stderr_begin(void) {
    fflush(stderr);
    real_stderr = dup(STDERR_FILENO);
    capture = memfd_create("stderr", 0);
    assert_true(real_stderr >= 0 && capture >= 0);
    assert_true(dup2(capture, STDERR_FILENO) >= 0);
}

const char *stderr_end(void) {
    fflush(stderr);
    dup2(real_stderr, STDERR_FILENO);
    close(real_stderr);
    const ssize_t got = pread(capture, said, sizeof said - 1, 0);
    said[got > 0 ? got : 0] = '\0';
    close(capture);
    return said;
}
