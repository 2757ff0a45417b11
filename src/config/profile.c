#include "config/profile.h"

#include <string.h>

static const ElfW(Phdr) * program_headers;
static size_t program_header_count;

// What a text has said so far.
struct reading {
    struct profile *profile;
    struct profile_error *error;
    profile_setting *setting;
    unsigned line, last_class_line;
    // Where each line of profile->prewarm was.
    unsigned prewarm_lines[PROFILE_PREWARM_MAX];
    struct slice prewarm_values[PROFILE_PREWARM_MAX];
    bool has_format, has_version, has_program;
};

uint64_t (*profile_block_bytes)(uint64_t bytes);

void profile_set_program(const ElfW(Phdr) * headers, size_t count) {
    program_headers = headers;
    program_header_count = count;
}

// NULL, or what is wrong with a line of one kind.
typedef const char *read_line(struct reading *reading, struct slice value);

static const char *once(bool *seen) {
    const bool again = *seen;
    *seen = true;
    return again ? "is there twice" : NULL;
}

static const char *read_format(struct reading *reading, struct slice value) {
    return slice_is(value, "1") ? once(&reading->has_format)
                                : "is not 1, the format that this library reads";
}

static const char *read_version(struct reading *reading, struct slice value) {
    return slice_is(value, HAKMEM_VERSION) ? once(&reading->has_version)
                                           : "is not " HAKMEM_VERSION ", this library's version";
}

static const char *read_program(struct reading *reading, struct slice value) {
    const struct build_id program = build_id_of_program(program_headers, program_header_count);
    struct build_id wanted;
    if (!build_id_parse(value, &wanted)) {
        return "is no build-id";
    }
    return build_id_is(&wanted, &program) ? once(&reading->has_program)
                                          : "is not this program's build-id";
}

static const char *wrong_class(const struct profile *profile, const struct profile_class *class) {
    if (class->block_bytes % 16 != 0) {
        return "is not a multiple of 16 bytes";
    }
    if (profile->class_count != 0 &&
        class->block_bytes <= profile->classes[profile->class_count - 1].block_bytes) {
        return "is not above the class before it";
    }
    if (profile->class_count == PROFILE_CLASSES_MAX) {
        return "is one class too many";
    }
    const uint64_t slab_bytes = (uint64_t) class->slab_pages * PROFILE_PAGE_BYTES;
    return slab_bytes / class->block_bytes > PROFILE_SLAB_BLOCKS_MAX
               ? "has more than 4096 blocks in a slab"
               : NULL;
}

static const char *read_class(struct reading *reading, struct slice value) {
    struct profile *profile = reading->profile;
    struct slice rest = value;
    const bool has_pages = memchr(value.bytes, ':', value.count) != NULL;
    uint64_t bytes, pages = 0;
    if (!slice_size(slice_trim(slice_next(&rest, ':')), &bytes) || bytes == 0 ||
        bytes > PROFILE_CLASS_BYTES_LAST) {
        return "is not a size of 16 to 65536 bytes";
    }
    if (has_pages && (!slice_decimal(slice_trim(rest), &pages) || pages == 0 ||
                      pages > PROFILE_SLAB_PAGES_MAX)) {
        return "does not have 1 to 32 pages to a slab";
    }
    const struct profile_class class = {(uint32_t)bytes, (uint32_t)pages};
    const char *what = wrong_class(profile, &class);
    if (what == NULL) {
        profile->classes[profile->class_count++] = class;
        reading->last_class_line = reading->line;
    }
    return what;
}

static const char *read_prewarm(struct reading *reading, struct slice value) {
    struct profile *profile = reading->profile;
    struct slice rest = value;
    uint64_t bytes, count;
    if (!slice_size(slice_trim(slice_next(&rest, ':')), &bytes) || bytes == 0 ||
        bytes > PROFILE_CLASS_BYTES_LAST) {
        return "is not for a size of 1 to 65536 bytes";
    }
    if (!slice_decimal(slice_trim(rest), &count) || count == 0 ||
        count > PROFILE_PREWARM_BLOCKS_MAX) {
        return "is not for 1 to 4096 blocks";
    }
    if (profile->prewarm_count == PROFILE_PREWARM_MAX) {
        return "is one line too many of its kind";
    }
    reading->prewarm_lines[profile->prewarm_count] = reading->line;
    reading->prewarm_values[profile->prewarm_count] = value;
    profile->prewarm[profile->prewarm_count++] =
        (struct profile_prewarm){(uint32_t)bytes, (uint32_t)count};
    return NULL;
}

static const struct {
    const char *name;
    read_line *read;
} kinds[] = {
    {"profile_format", read_format},    {"hakmem_version", read_version},
    {"program_build_id", read_program}, {"size_class", read_class},
    {"prewarm", read_prewarm},
};

static bool fail(const struct reading *reading, struct slice name, struct slice value,
                 const char *what) {
    *reading->error = (struct profile_error){reading->line, name, value, what};
    return false;
}

static bool read_setting(struct reading *reading, struct slice name, struct slice value) {
    const char *what = NULL;
    return reading->setting(name, value, reading->line, &what) || fail(reading, name, value, what);
}

// `prewarm` is an option as well: with a colon in its value it is a line of the profile's own.
static bool is_option(struct slice name, struct slice value) {
    return slice_is(name, "prewarm") && memchr(value.bytes, ':', value.count) == NULL;
}

static bool read_item(struct reading *reading, struct slice item) {
    struct slice value = item;
    if (memchr(item.bytes, '=', item.count) == NULL) {
        return fail(reading, item, (struct slice){item.bytes, 0}, "has no '=' and value");
    }
    const struct slice name = slice_trim(slice_next(&value, '='));
    value = slice_trim(value);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (slice_is(name, kinds[i].name) && !is_option(name, value)) {
            const char *what = kinds[i].read(reading, value);
            return what == NULL || fail(reading, name, value, what);
        }
    }
    return read_setting(reading, name, value);
}

// The bytes of the block that serves a request.
static uint64_t block_bytes_for(const struct profile *profile, uint32_t bytes) {
    for (uint32_t i = 0; i < profile->class_count; i++) {
        if (profile->classes[i].block_bytes >= bytes) {
            return profile->classes[i].block_bytes;
        }
    }
    return profile_block_bytes != NULL ? profile_block_bytes(bytes) : bytes;
}

// Which class a line is for, and so how much memory it stands for, is known when all classes are.
static bool prewarm_is_well(struct reading *reading) {
    const struct profile *profile = reading->profile;
    uint64_t sum = 0, block_bytes[PROFILE_PREWARM_MAX];
    for (uint32_t i = 0; i < profile->prewarm_count; i++) {
        const char *what = NULL;
        block_bytes[i] = block_bytes_for(profile, profile->prewarm[i].bytes);
        for (uint32_t other = 0; other < i; other++) {
            if (block_bytes[other] == block_bytes[i]) {
                what = "is for the size class of a line before it";
            }
        }
        sum += block_bytes[i] * profile->prewarm[i].count;
        if (what == NULL && sum > PROFILE_PREWARM_BYTES_MAX) {
            what = "makes it more than 4194304 bytes to have ready";
        }
        if (what != NULL) {
            reading->line = reading->prewarm_lines[i];
            return fail(reading, slice_of("prewarm"), reading->prewarm_values[i], what);
        }
    }
    return true;
}

static bool ends_well(struct reading *reading) {
    const struct profile *profile = reading->profile;
    if (profile->class_count != 0 &&
        profile->classes[profile->class_count - 1].block_bytes != PROFILE_CLASS_BYTES_LAST) {
        reading->line = reading->last_class_line;
        const struct slice name = slice_of("size_class");
        return fail(reading, name, (struct slice){name.bytes, 0},
                    "is the last class, which is to be 65536");
    }
    return prewarm_is_well(reading);
}

bool profile_parse(struct slice text, profile_setting *setting, struct profile *out,
                   struct profile_error *error) {
    struct reading reading = {.profile = out, .error = error, .setting = setting};
    out->class_count = out->prewarm_count = 0;
    while (text.count > 0) {
        struct slice line = slice_next(&text, '\n');
        const struct slice item = slice_trim(slice_next(&line, '#'));
        reading.line++;
        if (item.count > 0 && !read_item(&reading, item)) {
            return false;
        }
    }
    return ends_well(&reading);
}
