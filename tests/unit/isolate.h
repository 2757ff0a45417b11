// Runs each test of a group in a process of its own: the arena, the page map and the registry of
// threads are static, so a fresh state is a fresh process, and a crash or an endless loop ends one
// test only. With an argument, runs the tests of that name alone, in this process (for a debugger).
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"

// Returns the number of failed tests, for main to return.
int run_isolated(int argument_count, char **arguments, const struct CMUnitTest *tests,
                 size_t count);

// Runs `scenario` in a child process, for a test that needs many fresh states. The child fails the
// test by any exit but the returned status of the scenario, which must be below 100. Assertions of
// cmocka do not work in there: use require().
int run_scenario(int (*scenario)(const void *context), const void *context);

// Runs `scenario` in a child process, where a require() must fail: the control of a test.
void expect_failure(int (*scenario)(const void *context), const void *context);

// Runs `scenario` in a child process, which must end with SIGABRT.
void expect_abort(int (*scenario)(const void *context));

// For threads and scenarios: a message and the end of the process.
#define require(condition) require_that((condition), __FILE__, __LINE__, #condition)
void require_that(bool holds, const char *file, int line, const char *condition);

// A seed for random operations: TEST_SEED from the environment, else one from the clock. Printed, so
// that a failure can be repeated.
uint64_t test_seed(void);

// What is written to standard error between the two calls. The text is valid until the next begin.
void stderr_begin(void);
const char *stderr_end(void);
