#include "fuzz.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

void __sanitizer_set_report_fd(void *fd);

static int real_stderr = STDERR_FILENO;
static int captured = -1;
static char said[256 * 1024];

void fuzz_fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    dprintf(real_stderr, "fuzz: ");
    vdprintf(real_stderr, format, arguments);
    dprintf(real_stderr, "\n");
    va_end(arguments);
    dup2(real_stderr, STDERR_FILENO);
    abort();
}

void fuzz_stderr_begin(void) {
    if (captured < 0) {
        real_stderr = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 100);
        captured = memfd_create("stderr", MFD_CLOEXEC);
        fuzz_require(real_stderr >= 0 && captured >= 0);
        __sanitizer_set_report_fd((void *)(intptr_t)real_stderr);
    }
    fuzz_require(ftruncate(captured, 0) == 0 && lseek(captured, 0, SEEK_SET) == 0);
    fuzz_require(dup2(captured, STDERR_FILENO) >= 0);
}

const char *fuzz_stderr_end(size_t *count) {
    fuzz_require(dup2(real_stderr, STDERR_FILENO) >= 0);
    const ssize_t got = pread(captured, said, sizeof said - 1, 0);
    fuzz_require(got >= 0 && (size_t)got < sizeof said - 1);
    said[got] = '\0';
    *count = (size_t)got;
    return said;
}
