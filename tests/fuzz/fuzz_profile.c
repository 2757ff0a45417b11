// The profile file: the input is its text.
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "load_check.h"

static const char *skip_blanks(const char *from, const char *end) {
    while (from < end && strchr(" \t\r", *from) != NULL && *from != '\0') {
        from++;
    }
    return from;
}

static const char *drop_blanks(const char *from, const char *end) {
    while (end > from && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r')) {
        end--;
    }
    return end;
}

static void expect_line(const char *line, const char *end) {
    line = skip_blanks(line, end);
    const char *equals = memchr(line, '=', (size_t)(end - line));
    if (equals == NULL || *line == '#') {
        return;
    }
    const char *value = skip_blanks(equals + 1, end);
    expect_setting(line, (size_t)(drop_blanks(line, equals) - line), value,
                   (size_t)(drop_blanks(value, end) - value), true);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
    static int file = -1;
    static char variable[64];
    if (file < 0) {
        file = memfd_create("profile", MFD_CLOEXEC);
        fuzz_require(file >= 0);
        snprintf(variable, sizeof variable, "HAKMEM_PROFILE=/proc/self/fd/%d", file);
    }
    fuzz_require(ftruncate(file, 0) == 0);
    fuzz_require(pwrite(file, bytes, count, 0) == (ssize_t)count);
    // A text with a NUL is no text, and no setting of it counts.
    if (memchr(bytes, '\0', count) == NULL) {
        const char *end = (const char *)bytes + count;
        for (const char *line = (const char *)bytes; line < end;) {
            const char *next = memchr(line, '\n', (size_t)(end - line));
            next = next == NULL ? end : next;
            expect_line(line, next);
            line = next + 1;
        }
    }
    char *envp[] = {variable, NULL};
    load_checked(envp);
    expectations_check(OPTION_ORIGIN_PROFILE);
    return 0;
}
