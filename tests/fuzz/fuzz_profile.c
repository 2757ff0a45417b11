// The profile file: the input is its text.
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "load_check.h"

#include "space/size_class.h"

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
    if (memchr(value, ':', (size_t)(end - value)) != NULL) {
        return SETTING_UNSURE;  // a line of the profile's own, also where an option has its name
    }
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

// What a profile that counts says of size classes makes a table in which every size has its class.
static void check_classes(const struct profile *profile) {
    static struct size_class_table table;
    fuzz_require(profile->class_count <= PROFILE_CLASSES_MAX);
    fuzz_require(profile->prewarm_count <= PROFILE_PREWARM_MAX);
    if (profile->class_count == 0) {
        return;
    }
    size_class_build(&table, profile);
    for (size_t bytes = 0; bytes <= SMALL_BYTES_MAX; bytes += BLOCK_ALIGN) {
        const unsigned number = table.number_of_16[bytes / BLOCK_ALIGN];
        fuzz_require(number >= 1 && number <= table.count);
        const struct size_class *class = &table.rows[number - 1];
        fuzz_require(class->block_bytes >= bytes && class->block_bytes % BLOCK_ALIGN == 0);
        fuzz_require(number == 1 || table.rows[number - 2].block_bytes < bytes || bytes == 0);
        fuzz_require(class->block_count >= 1 && class->block_count <= PROFILE_SLAB_BLOCKS_MAX);
        fuzz_require((size_t) class->block_count * class->block_bytes <=
                     class->slab_pages * PAGE_BYTES);
    }
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
        if (profile_in_force != NULL) {
            check_classes(profile_in_force);
        }
    } else {
        fuzz_require(expected != SETTING_RIGHT);
        expectations_refuse(OPTION_ORIGIN_PROFILE);
    }
    return 0;
}
