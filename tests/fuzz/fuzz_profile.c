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

static enum setting expect_line(const char *line, const char *end) {
    const char *comment = memchr(line, '#', (size_t)(end - line));
    end = drop_blanks(line, comment == NULL ? end : comment);
    line = skip_blanks(line, end);
    const char *equals = memchr(line, '=', (size_t)(end - line));
    if (line == end) {
        return SETTING_RIGHT;
    }
    if (equals == NULL) {
        return SETTING_WRONG;
    }
    const char *value = skip_blanks(equals + 1, end);
    return expect_setting(line, (size_t)(drop_blanks(line, equals) - line), value,
                          (size_t)(end - value));
}

// The text as a whole.
static enum setting expect_text(const char *text, const char *end) {
    enum setting whole = SETTING_RIGHT;
    // A text with a NUL is no text, and no setting of it counts.
    if (memchr(text, '\0', (size_t)(end - text)) != NULL) {
        return SETTING_WRONG;
    }
    for (const char *line = text; line < end;) {
        const char *next = memchr(line, '\n', (size_t)(end - line));
        next = next == NULL ? end : next;
        const enum setting one = expect_line(line, next);
        whole = one == SETTING_WRONG || whole == SETTING_RIGHT ? one : whole;
        line = next + 1;
        if (whole == SETTING_WRONG) {
            break;
        }
    }
    return whole;
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
    const enum setting expected = expect_text((const char *)bytes, (const char *)bytes + count);
    char *envp[] = {variable, NULL};
    // It counts as a whole, without a word, or not at all, with one line.
    if (load_checked(envp) == 0) {
        fuzz_require(expected != SETTING_WRONG);
        expectations_check(OPTION_ORIGIN_PROFILE);
    } else {
        fuzz_require(expected != SETTING_RIGHT);
        expectations_refuse(OPTION_ORIGIN_PROFILE);
    }
    return 0;
}
