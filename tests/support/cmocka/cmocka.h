// The part of cmocka's interface (https://api.cmocka.org, version 1.1) that the tests here use, for
// C libraries and processors that Debian has no cmocka for: a failed assertion prints its place and
// leaves its test, and the rest of the group runs.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef void (*CMUnitTestFunction)(void **state);
typedef int (*CMFixtureFunction)(void **state);

struct CMUnitTest {
    const char *name;
    CMUnitTestFunction test_func;
    CMFixtureFunction setup_func;
    CMFixtureFunction teardown_func;
    void *initial_state;
};

#define cmocka_unit_test(function) \
    { #function, function, NULL, NULL, NULL }
#define cmocka_unit_test_teardown(function, teardown) \
    { #function, function, NULL, teardown, NULL }

// The number of failed tests.
int _cmocka_run_group_tests(const char *group_name, const struct CMUnitTest *tests, size_t count,
                            CMFixtureFunction setup, CMFixtureFunction teardown);
#define cmocka_run_group_tests_name(name, tests, setup, teardown) \
    _cmocka_run_group_tests(name, tests, sizeof(tests) / sizeof((tests)[0]), setup, teardown)
#define cmocka_run_group_tests(tests, setup, teardown) \
    cmocka_run_group_tests_name(#tests, tests, setup, teardown)

__attribute__((format(printf, 1, 2))) void print_message(const char *format, ...);
__attribute__((format(printf, 1, 2))) void print_error(const char *format, ...);

// Ends the test that runs; outside of one, the process.
__attribute__((noreturn)) void _fail(const char *file, int line);
void _assert_true(uintmax_t value, const char *expression, const char *file, int line);
void _assert_int_equal(uintmax_t a, uintmax_t b, int equal, const char *file, int line);
void _assert_in_range(uintmax_t value, uintmax_t least, uintmax_t most, const char *file, int line);
void _assert_string_equal(const char *a, const char *b, const char *file, int line);
void _assert_memory_equal(const void *a, const void *b, size_t bytes, const char *file, int line);

#define CMOCKA_HERE __FILE__, __LINE__
#define CMOCKA_WORD(pointer) ((uintmax_t)(uintptr_t)(pointer))
#define fail_msg(...)             \
    do {                          \
        print_error(__VA_ARGS__); \
        print_error("\n");        \
        _fail(CMOCKA_HERE);       \
    } while (0)
#define assert_true(value) _assert_true((value) ? 1 : 0, #value, CMOCKA_HERE)
#define assert_false(value) _assert_true((value) ? 0 : 1, "not " #value, CMOCKA_HERE)
#define assert_null(value) _assert_int_equal(CMOCKA_WORD(value), 0, 1, CMOCKA_HERE)
#define assert_non_null(value) _assert_int_equal(CMOCKA_WORD(value), 0, 0, CMOCKA_HERE)
#define assert_int_equal(a, b) _assert_int_equal((uintmax_t)(a), (uintmax_t)(b), 1, CMOCKA_HERE)
#define assert_int_not_equal(a, b) _assert_int_equal((uintmax_t)(a), (uintmax_t)(b), 0, CMOCKA_HERE)
#define assert_ptr_equal(a, b) _assert_int_equal(CMOCKA_WORD(a), CMOCKA_WORD(b), 1, CMOCKA_HERE)
#define assert_ptr_not_equal(a, b) _assert_int_equal(CMOCKA_WORD(a), CMOCKA_WORD(b), 0, CMOCKA_HERE)
#define assert_in_range(value, least, most) \
    _assert_in_range((uintmax_t)(value), (uintmax_t)(least), (uintmax_t)(most), CMOCKA_HERE)
#define assert_string_equal(a, b) _assert_string_equal((a), (b), CMOCKA_HERE)
#define assert_memory_equal(a, b, bytes) _assert_memory_equal((a), (b), (bytes), CMOCKA_HERE)

#ifdef __cplusplus
}
#endif
