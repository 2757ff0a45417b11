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

// ---- The profile's own lines, read a second time

static struct {
    struct profile profile;
    bool is_unsure;  // a line too long to be read here
} expected_rows;

static bool is_within(uint64_t value, uint64_t least, uint64_t most) {
    return value >= least && value <= most;
}

static enum setting expect_class(uint64_t bytes, bool has_pages, uint64_t pages) {
    struct profile *profile = &expected_rows.profile;
    const uint32_t count = profile->class_count;
    if (!is_within(bytes, 16, 65536) || bytes % 16 != 0 || count == PROFILE_CLASSES_MAX ||
        (count != 0 && bytes <= profile->classes[count - 1].block_bytes) ||
        (has_pages && (!is_within(pages, 1, 32) || pages * 65536 / bytes > 4096))) {
        return SETTING_WRONG;
    }
    profile->classes[profile->class_count++] =
        (struct profile_class){(uint32_t)bytes, has_pages ? (uint32_t)pages : 0};
    return SETTING_RIGHT;
}

static enum setting expect_prewarm(uint64_t bytes, uint64_t blocks) {
    struct profile *profile = &expected_rows.profile;
    if (!is_within(bytes, 1, 65536) || !is_within(blocks, 1, 4096) ||
        profile->prewarm_count == PROFILE_PREWARM_MAX) {
        return SETTING_WRONG;
    }
    profile->prewarm[profile->prewarm_count++] =
        (struct profile_prewarm){(uint32_t)bytes, (uint32_t)blocks};
    return SETTING_RIGHT;
}

// A value of a size, or of a size and a number.
static enum setting expect_row(bool is_class, const char *value, const char *end) {
    const char *colon = memchr(value, ':', (size_t)(end - value));
    const char *size_end = drop_blanks(value, colon == NULL ? end : colon);
    const char *second = colon == NULL ? end : skip_blanks(colon + 1, end);
    uint64_t bytes, number = 0;
    if (expected_rows.is_unsure || size_end - value > EXPECTED_BYTES_MAX ||
        end - second > EXPECTED_BYTES_MAX) {
        expected_rows.is_unsure = true;
        return SETTING_UNSURE;
    }
    if (!expect_number(value, (size_t)(size_end - value), true, &bytes) ||
        (colon != NULL && !expect_number(second, (size_t)(end - second), false, &number))) {
        return SETTING_WRONG;
    }
    return is_class ? expect_class(bytes, colon != NULL, number) : expect_prewarm(bytes, number);
}

static uint64_t expected_block_bytes(uint32_t bytes) {
    static const uint32_t built_in[] = {
#define SIZE_CLASS(index, previous, bytes, pages) (bytes),
#include "space/size_class.def"
#undef SIZE_CLASS
    };
    const struct profile *profile = &expected_rows.profile;
    unsigned index = 0;
    if (profile->class_count == 0) {
        while (built_in[index] < bytes) {
            index++;
        }
        return built_in[index];
    }
    while (profile->classes[index].block_bytes < bytes) {
        index++;
    }
    return profile->classes[index].block_bytes;
}

// What is known when all lines are.
static enum setting expect_rows(void) {
    const struct profile *profile = &expected_rows.profile;
    uint64_t sum = 0;
    if (expected_rows.is_unsure) {
        return SETTING_UNSURE;
    }
    if (profile->class_count != 0 &&
        profile->classes[profile->class_count - 1].block_bytes != SMALL_BYTES_MAX) {
        return SETTING_WRONG;
    }
    for (uint32_t i = 0; i < profile->prewarm_count; i++) {
        const uint64_t bytes = expected_block_bytes(profile->prewarm[i].bytes);
        sum += bytes * profile->prewarm[i].count;
        for (uint32_t other = 0; other < i; other++) {
            if (expected_block_bytes(profile->prewarm[other].bytes) == bytes) {
                return SETTING_WRONG;
            }
        }
    }
    return sum <= 4 * MIB ? SETTING_RIGHT : SETTING_WRONG;
}

static void check_rows(const struct profile *profile) {
    const struct profile *expected = &expected_rows.profile;
    if (expected_rows.is_unsure) {
        return;
    }
    fuzz_require(profile->class_count == expected->class_count);
    fuzz_require(profile->prewarm_count == expected->prewarm_count);
    fuzz_require(memcmp(profile->classes, expected->classes,
                        expected->class_count * sizeof *expected->classes) == 0);
    fuzz_require(memcmp(profile->prewarm, expected->prewarm,
                        expected->prewarm_count * sizeof *expected->prewarm) == 0);
}

// ---- The text

static bool is_called(const char *name, const char *line, const char *end) {
    return (size_t)(end - line) == strlen(name) && memcmp(line, name, (size_t)(end - line)) == 0;
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
    const char *name_end = drop_blanks(line, equals);
    const bool is_class = is_called("size_class", line, name_end);
    const bool has_colon = memchr(value, ':', (size_t)(end - value)) != NULL;
    // `prewarm` is an option as well.
    if (is_class || (has_colon && is_called("prewarm", line, name_end))) {
        return expect_row(is_class, value, end);
    }
    return expect_setting(line, (size_t)(name_end - line), value, (size_t)(end - value));
}

// The text as a whole.
static enum setting expect_text(const char *text, const char *end) {
    enum setting whole = SETTING_RIGHT;
    memset(&expected_rows, 0, sizeof expected_rows);
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
            return whole;
        }
    }
    return expect_rows() == SETTING_WRONG ? SETTING_WRONG : whole;
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
        profile_block_bytes = size_class_block_bytes;
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
        fuzz_require(profile_in_force != NULL);
        check_classes(profile_in_force);
        check_rows(profile_in_force);
    } else {
        fuzz_require(expected != SETTING_RIGHT);
        expectations_refuse(OPTION_ORIGIN_PROFILE);
    }
    return 0;
}
