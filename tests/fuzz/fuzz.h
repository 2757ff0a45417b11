// What the fuzz targets share. Each target is a program of libFuzzer; LLVMFuzzerTestOneInput gets one
// input after another in the same process, and an input that shows a fault ends the process.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerInitialize(int *argument_count, char ***arguments);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

// One line on the program's real standard error, and abort: libFuzzer then keeps the input.
__attribute__((noreturn, format(printf, 1, 2))) void fuzz_fail(const char *format, ...);

#define fuzz_require(condition)                                             \
    do {                                                                    \
        if (!(condition)) {                                                 \
            fuzz_fail("%s:%d: not so: %s", __FILE__, __LINE__, #condition); \
        }                                                                   \
    } while (0)

// What the code under test writes to standard error between the two calls; valid until the next
// begin.
void fuzz_stderr_begin(void);
const char *fuzz_stderr_end(size_t *count);
