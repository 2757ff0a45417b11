#include "cmocka.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Where a failed assertion of the running test continues. Tests run one at a time, and their
// assertions in the thread that runs them.
static jmp_buf end_of_test;
static bool in_test;

void print_message(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    fflush(stdout);
}

void print_error(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
}

void _fail(const char *file, int line) {
    print_error("%s:%d: error: Failure!\n", file, line);
    if (!in_test) {
        abort();
    }
    longjmp(end_of_test, 1);
}

void _assert_true(uintmax_t value, const char *expression, const char *file, int line) {
    if (value == 0) {
        print_error("%s\n", expression);
        _fail(file, line);
    }
}

void _assert_int_equal(uintmax_t a, uintmax_t b, int equal, const char *file, int line) {
    if ((a == b) != (equal != 0)) {
        print_error("%#jx %s %#jx\n", a, equal ? "!=" : "==", b);
        _fail(file, line);
    }
}

void _assert_in_range(uintmax_t value, uintmax_t least, uintmax_t most, const char *file,
                      int line) {
    if (value < least || value > most) {
        print_error("%ju is not within the range %ju-%ju\n", value, least, most);
        _fail(file, line);
    }
}

void _assert_string_equal(const char *a, const char *b, const char *file, int line) {
    if (strcmp(a, b) != 0) {
        print_error("\"%s\" != \"%s\"\n", a, b);
        _fail(file, line);
    }
}

void _assert_memory_equal(const void *a, const void *b, size_t bytes, const char *file, int line) {
    if (memcmp(a, b, bytes) != 0) {
        print_error("%zu bytes differ\n", bytes);
        _fail(file, line);
    }
}

// True when the test and its fixtures passed.
static bool run(const struct CMUnitTest *test, void **group_state) {
    void *own_state = test->initial_state;
    void **state = own_state == NULL ? group_state : &own_state;
    if (test->setup_func != NULL && test->setup_func(state) != 0) {
        return false;
    }
    volatile bool passed = false;
    in_test = true;
    if (setjmp(end_of_test) == 0) {
        test->test_func(state);
        passed = true;
    }
    volatile bool cleared_up = false;
    if (setjmp(end_of_test) == 0) {
        cleared_up = test->teardown_func == NULL || test->teardown_func(state) == 0;
    }
    in_test = false;
    return passed && cleared_up;
}

int _cmocka_run_group_tests(const char *group_name, const struct CMUnitTest *tests, size_t count,
                            CMFixtureFunction setup, CMFixtureFunction teardown) {
    void *state = NULL;
    if (setup != NULL && setup(&state) != 0) {
        print_error("%s: the setup of the group failed\n", group_name);
        return (int)count;
    }
    int failed = 0;
    for (size_t i = 0; i < count; i++) {
        const bool passed = run(&tests[i], &state);
        print_message("[%s] %s\n", passed ? "       OK " : "  FAILED  ", tests[i].name);
        failed += passed ? 0 : 1;
    }
    if (teardown != NULL && teardown(&state) != 0) {
        print_error("%s: the teardown of the group failed\n", group_name);
        failed++;
    }
    return failed;
}
