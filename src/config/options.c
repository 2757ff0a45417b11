#include "config/options.h"

#include "base/base.h"
#include "config/slice.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    PROFILE_BYTES_MAX = 64 * 1024,
    STRING_BYTES_MAX = 4095,
    WARNINGS_MAX = 8,
    VALUE_SHOWN_MAX = 64,  // bytes of a bad value that a warning repeats
};

#define OPTION(name, type, initial, min, max, unit, when, help) .name = (initial),
#define CHOICE(option, name, number, help)
#define MODE(mode, option, value)
struct options options = {
#include "config/options.def"
};

#define OPTION(name, type, initial, min, max, unit, when, help) .name = (initial),
#define CHOICE(option, name, number, help)
#define MODE(mode, option, value)
static const struct options defaults = {
#include "config/options.def"
};

struct row {
    const char *name;
    const char *unit;
    uint64_t min;
    uint64_t max;
    enum option_type type;
    enum option_when when;
    size_t offset;  // of its field in struct options
};

#define OPTION(name, type, initial, min, max, unit, when, help) \
    {#name,                                                     \
     unit,                                                      \
     (min),                                                     \
     (max),                                                     \
     OPTION_TYPE_##type,                                        \
     OPTION_WHEN_##when,                                        \
     offsetof(struct options, name)},
#define CHOICE(option, name, number, help)
#define MODE(mode, option, value)
static const struct row rows[OPTION_COUNT] = {
#include "config/options.def"
};

#define OPTION(name, type, initial, min, max, unit, when, help)
#define CHOICE(option, name, number, help) {OPTION_##option, (number), #name},
#define MODE(mode, option, value)
static const struct choice {
    enum option_id option;
    uint64_t number;
    const char *name;
} choices[] = {
#include "config/options.def"
};

#define OPTION(name, type, initial, min, max, unit, when, help)
#define CHOICE(option, name, number, help)
#define MODE(mode, option, value) {mode_##mode, OPTION_##option, (value)},
static const struct preset {
    uint64_t mode;
    enum option_id option;
    uint64_t value;
} presets[] = {
#include "config/options.def"
};

#define ALIAS(name, option) {#name, OPTION_##option},
static const struct alias {
    const char *name;
    enum option_id option;
} aliases[] = {
#include "config/aliases.def"
};

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

static const char *const origin_names[] = {
    [OPTION_ORIGIN_DEFAULT] = "default",         [OPTION_ORIGIN_MODE] = "mode",
    [OPTION_ORIGIN_PROFILE] = "profile",         [OPTION_ORIGIN_CONF] = "HAKMEM_CONF",
    [OPTION_ORIGIN_ENVIRONMENT] = "environment", [OPTION_ORIGIN_RUNTIME] = "runtime",
};

// Relaxed, pairs with nothing: written where the value is, read only to be shown.
static uint8_t origins[OPTION_COUNT];
INSPECTABLE(origins, option_origins);

// The environment's own bytes may be overwritten by the program (setproctitle), so a path is
// copied. The places of options of other types are never touched, and cost nothing.
static char string_copies[OPTION_COUNT][STRING_BYTES_MAX + 1];

// Read once at start-up; untouched pages of it cost nothing when there is no profile.
static char profile_text[PROFILE_BYTES_MAX + 1];

static unsigned warning_count;

// Where a setting was found, for the warning about it.
struct place {
    enum option_origin origin;
    struct slice profile;  // the file's path, with `line`, when the origin is the profile
    unsigned line;
};

// ---- Values

static uint64_t value_load(enum option_id id) {
    const char *field = (const char *)&options + rows[id].offset;
    // Relaxed, as option_live.
    return __atomic_load_n((const uint64_t *)(const void *)field, __ATOMIC_RELAXED);
}

static void origin_store(enum option_id id, enum option_origin origin) {
    // Relaxed, as declared.
    __atomic_store_n(&origins[id], (uint8_t)origin, __ATOMIC_RELAXED);
}

static void value_store(enum option_id id, uint64_t value, enum option_origin origin) {
    char *field = (char *)&options + rows[id].offset;
    // Relaxed, pairs with option_live.
    __atomic_store_n((uint64_t *)(void *)field, value, __ATOMIC_RELAXED);
    origin_store(id, origin);
}

static bool parse_choice(enum option_id id, struct slice text, uint64_t *value) {
    for (size_t i = 0; i < COUNT_OF(choices); i++) {
        if (choices[i].option == id && slice_is_word(text, choices[i].name)) {
            *value = choices[i].number;
            return true;
        }
    }
    return false;
}

static bool parse_value(enum option_id id, struct slice text, uint64_t *value) {
    bool parsed = false;
    switch (rows[id].type) {
    case OPTION_TYPE_BOOL:
        parsed = slice_bool(text, value);
        break;
    case OPTION_TYPE_UINT:
    case OPTION_TYPE_MS:
        parsed = slice_decimal(text, value);
        break;
    case OPTION_TYPE_BYTES:
        parsed = slice_size(text, value);
        break;
    case OPTION_TYPE_ENUM:
        parsed = parse_choice(id, text, value);
        break;
    case OPTION_TYPE_STRING:
        break;
    }
    return parsed && *value >= rows[id].min && *value <= rows[id].max;
}

static const char **string_field(enum option_id id) {
    return (const char **)(void *)((char *)&options + rows[id].offset);
}

static bool string_store(enum option_id id, struct slice text, enum option_origin origin) {
    if (text.count > rows[id].max || memchr(text.bytes, '\0', text.count) != NULL) {
        return false;
    }
    memcpy(string_copies[id], text.bytes, text.count);
    string_copies[id][text.count] = '\0';
    *string_field(id) = string_copies[id];
    origin_store(id, origin);
    return true;
}

static bool option_store(enum option_id id, struct slice text, enum option_origin origin) {
    uint64_t value = 0;
    if (rows[id].type == OPTION_TYPE_STRING) {
        return string_store(id, text, origin);
    }
    if (!parse_value(id, text, &value)) {
        return false;
    }
    value_store(id, value, origin);
    return true;
}

static void text_value(struct text *out, enum option_id id) {
    if (rows[id].type == OPTION_TYPE_STRING) {
        const char *text = *string_field(id);
        text_escaped(out, text, strlen(text), STRING_BYTES_MAX);
        return;
    }
    uint64_t value = value_load(id);
    for (size_t i = 0; i < COUNT_OF(choices); i++) {
        if (choices[i].option == id && choices[i].number == value) {
            text_string(out, choices[i].name);
            return;
        }
    }
    text_unsigned(out, value);
}

// ---- Warnings

// False when enough was said: a hostile environment must not flood standard error.
static bool warning_allowed(void) {
    if (warning_count == WARNINGS_MAX) {
        struct text line;
        text_clear(&line);
        text_string(&line, "hakmem: more options are wrong; no further warnings about them\n");
        text_flush(&line, STDERR_FILENO);
    }
    return warning_count++ < WARNINGS_MAX;
}

static void text_place(struct text *line, struct slice name, const struct place *place) {
    text_string(line, "hakmem: option ");
    if (place->origin == OPTION_ORIGIN_ENVIRONMENT) {
        text_string(line, "HAKMEM_");
    }
    text_escaped(line, name.bytes, name.count, VALUE_SHOWN_MAX);
    if (place->origin == OPTION_ORIGIN_CONF) {
        text_string(line, " in HAKMEM_CONF");
    } else if (place->origin == OPTION_ORIGIN_PROFILE) {
        text_string(line, " in '");
        text_escaped(line, place->profile.bytes, place->profile.count, VALUE_SHOWN_MAX);
        text_string(line, "' line ");
        text_unsigned(line, place->line);
    }
    text_string(line, ": ");
}

static void warn_unknown(struct slice name, const struct place *place) {
    struct text line;
    if (!warning_allowed()) {
        return;
    }
    text_clear(&line);
    text_place(&line, name, place);
    text_string(&line, "unknown, ignored\n");
    text_flush(&line, STDERR_FILENO);
}

static void text_expected(struct text *line, enum option_id id) {
    const struct row *row = &rows[id];
    const char *separator = "";
    switch (row->type) {
    case OPTION_TYPE_BOOL:
        text_string(line, " is not 0 or 1");
        return;
    case OPTION_TYPE_ENUM:
        text_string(line, " is not one of ");
        for (size_t i = 0; i < COUNT_OF(choices); i++) {
            if (choices[i].option == id) {
                text_string(line, separator);
                text_string(line, choices[i].name);
                separator = ", ";
            }
        }
        return;
    case OPTION_TYPE_STRING:
        text_string(line, " is not a path of at most ");
        text_unsigned(line, row->max);
        text_string(line, " bytes");
        return;
    case OPTION_TYPE_UINT:
    case OPTION_TYPE_BYTES:
    case OPTION_TYPE_MS:
        text_string(line, " is not a number");
        if (row->unit[0] != '\0') {
            text_string(line, " of ");
            text_string(line, row->unit);
        }
        text_string(line, " (");
        text_unsigned(line, row->min);
        text_string(line, "..");
        text_unsigned(line, row->max);
        text_string(line, ")");
        return;
    }
}

static void warn_value(enum option_id id, struct slice name, struct slice value,
                       const struct place *place) {
    struct text line;
    if (!warning_allowed()) {
        return;
    }
    text_clear(&line);
    text_place(&line, name, place);
    text_string(&line, "value '");
    text_escaped(&line, value.bytes, value.count, VALUE_SHOWN_MAX);
    text_string(&line, "'");
    text_expected(&line, id);
    text_string(&line, ", kept ");
    text_value(&line, id);
    text_string(&line, "\n");
    text_flush(&line, STDERR_FILENO);
}

static void warn_item(struct slice item, char separator, const struct place *place) {
    struct text line;
    if (!warning_allowed()) {
        return;
    }
    text_clear(&line);
    text_place(&line, item, place);
    text_string(&line, "has no '");
    text_char(&line, separator);
    text_string(&line, "' and value, ignored\n");
    text_flush(&line, STDERR_FILENO);
}

static void warn_profile(const char *path, const char *what, int error) {
    struct text line;
    if (!warning_allowed()) {
        return;
    }
    text_clear(&line);
    text_string(&line, "hakmem: option HAKMEM_PROFILE: '");
    text_escaped(&line, path, strlen(path), VALUE_SHOWN_MAX);
    text_string(&line, "' ");
    text_string(&line, what);
    if (error != 0) {
        text_string(&line, " (error ");
        text_unsigned(&line, (unsigned)error);
        text_string(&line, ")");
    }
    text_string(&line, ", ignored\n");
    text_flush(&line, STDERR_FILENO);
}

// ---- Sources

// The mode decides the presets, and a warning names the value that stays in force: so every source
// is walked twice, first for the mode alone, then, over the presets, for the rest.
enum pass {
    PASS_MODE,
    PASS_REST,
};

// An option by its own name or an alias, as `is` compares them.
static bool option_find_as(struct slice name, bool (*is)(struct slice slice, const char *string),
                           enum option_id *id) {
    for (unsigned i = 0; i < OPTION_COUNT; i++) {
        if (is(name, rows[i].name)) {
            *id = (enum option_id)i;
            return true;
        }
    }
    for (size_t i = 0; i < COUNT_OF(aliases); i++) {
        if (is(name, aliases[i].name)) {
            *id = aliases[i].option;
            return true;
        }
    }
    return false;
}

static bool option_find(struct slice name, enum option_id *id) {
    return option_find_as(name, slice_is, id);
}

static void setting_apply(enum option_id id, struct slice shown_name, struct slice value,
                          const struct place *place, enum pass pass) {
    if ((id == OPTION_mode) != (pass == PASS_MODE)) {
        return;
    }
    if (!option_store(id, value, place->origin)) {
        warn_value(id, shown_name, value, place);
    }
}

// One item of a list: name, separator, value.
static void item_apply(struct slice item, char separator, const struct place *place,
                       enum pass pass) {
    enum option_id id;
    struct slice rest = slice_trim(item);
    if (rest.count == 0) {
        return;
    }
    if (memchr(rest.bytes, separator, rest.count) == NULL) {
        if (pass == PASS_REST) {
            warn_item(rest, separator, place);
        }
        return;
    }
    struct slice name = slice_trim(slice_next(&rest, separator));
    if (option_find(name, &id)) {
        setting_apply(id, name, slice_trim(rest), place, pass);
    } else if (pass == PASS_REST) {
        warn_unknown(name, place);
    }
}

static void profile_apply(struct slice text, const char *path, enum pass pass) {
    struct place place = {.origin = OPTION_ORIGIN_PROFILE, .profile = slice_of(path)};
    while (text.count > 0) {
        struct slice line = slice_trim(slice_next(&text, '\n'));
        place.line++;
        if (line.count > 0 && line.bytes[0] != '#') {
            item_apply(line, '=', &place, pass);
        }
    }
}

static void conf_apply(const char *conf, enum pass pass) {
    struct place place = {.origin = OPTION_ORIGIN_CONF};
    struct slice text = slice_of(conf);
    while (text.count > 0) {
        item_apply(slice_next(&text, ','), ':', &place, pass);
    }
}

static const char prefix[] = "HAKMEM_";
enum { PREFIX_BYTES = sizeof prefix - 1 };

// The value of the first variable HAKMEM_<name>, as getenv would find it; NULL when unset or empty.
static const char *environment_find(char *const *envp, const char *name) {
    size_t count = strlen(name);
    for (; *envp != NULL; envp++) {
        if (strncmp(*envp, prefix, PREFIX_BYTES) == 0 &&
            strncmp(*envp + PREFIX_BYTES, name, count) == 0 &&
            (*envp)[PREFIX_BYTES + count] == '=') {
            const char *value = *envp + PREFIX_BYTES + count + 1;
            return value[0] != '\0' ? value : NULL;
        }
    }
    return NULL;
}

static void environment_apply(char *const *envp, enum pass pass) {
    struct place place = {.origin = OPTION_ORIGIN_ENVIRONMENT};
    uint8_t seen[OPTION_COUNT] = {0};
    for (; *envp != NULL; envp++) {
        enum option_id id;
        if (strncmp(*envp, prefix, PREFIX_BYTES) != 0) {
            continue;
        }
        struct slice value = slice_of(*envp + PREFIX_BYTES);
        if (memchr(value.bytes, '=', value.count) == NULL) {
            continue;  // not a variable: an execve caller may pass anything
        }
        struct slice name = slice_next(&value, '=');
        if (option_find_as(name, slice_is_upper, &id)) {
            // Of several variables of one name the first counts, as with getenv.
            if (!seen[id]) {
                seen[id] = 1;
                setting_apply(id, name, value, &place, pass);
            }
        } else if (pass == PASS_REST && !slice_is(name, "CONF") && !slice_is(name, "PROFILE")) {
            warn_unknown(name, &place);
        }
    }
}

// The text of the file, empty after a warning. Never waits: a FIFO or a device is seen to be no
// regular file, and no more than the limit is read of anything.
static struct slice profile_read(const char *path) {
    struct slice none = {profile_text, 0};
    struct stat status;
    long fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) {
        warn_profile(path, errno == ENOENT ? "does not exist" : "cannot be opened",
                     errno == ENOENT ? 0 : errno);
        return none;
    }
    const char *wrong = NULL;
    size_t count = 0;
    if (syscall(SYS_fstat, fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        wrong = "is not a regular file";
    }
    while (wrong == NULL && count < sizeof profile_text) {
        long n = syscall(SYS_read, fd, profile_text + count, sizeof profile_text - count);
        if (n == 0) {
            break;
        }
        if (n > 0) {
            count += (size_t)n;
        } else if (errno != EINTR) {
            wrong = "cannot be read";
        }
    }
    syscall(SYS_close, fd);
    if (wrong == NULL && count > PROFILE_BYTES_MAX) {
        wrong = "is larger than 65536 bytes";
    } else if (wrong == NULL && memchr(profile_text, '\0', count) != NULL) {
        wrong = "is not a text file";
    }
    if (wrong != NULL) {
        warn_profile(path, wrong, 0);
        return none;
    }
    return (struct slice){profile_text, count};
}

static void presets_apply(uint64_t mode) {
    for (size_t i = 0; i < COUNT_OF(presets); i++) {
        if (presets[i].mode == mode) {
            value_store(presets[i].option, presets[i].value, OPTION_ORIGIN_MODE);
        }
    }
}

void options_load(char *const *envp, bool secure) {
    int saved_errno = errno;
    options = defaults;
    memset(origins, OPTION_ORIGIN_DEFAULT, sizeof origins);
    warning_count = 0;
    if (envp != NULL && !secure) {
        const char *path = environment_find(envp, "PROFILE");
        const char *conf = environment_find(envp, "CONF");
        struct slice profile = path != NULL ? profile_read(path) : (struct slice){profile_text, 0};
        for (enum pass pass = PASS_MODE; pass <= PASS_REST; pass++) {
            if (pass == PASS_REST) {
                presets_apply(options.mode);
            }
            if (path != NULL) {
                profile_apply(profile, path, pass);
            }
            if (conf != NULL) {
                conf_apply(conf, pass);
            }
            environment_apply(envp, pass);
        }
    }
    if (options.verbose) {
        options_print(STDERR_FILENO);
    }
    errno = saved_errno;
}

bool options_set(const char *name, const char *value) {
    enum option_id id;
    if (name == NULL || value == NULL || !option_find(slice_of(name), &id) ||
        rows[id].when != OPTION_WHEN_LIVE) {
        return false;
    }
    return option_store(id, slice_of(value), OPTION_ORIGIN_RUNTIME);
}

bool options_get(const char *name, struct text *out) {
    enum option_id id;
    if (name == NULL || !option_find(slice_of(name), &id)) {
        return false;
    }
    text_value(out, id);
    return true;
}

const char *options_string(enum option_id id) {
    return rows[id].type == OPTION_TYPE_STRING ? *string_field(id) : NULL;
}

enum option_origin options_origin(enum option_id id) {
    // Relaxed, as declared.
    return (enum option_origin)__atomic_load_n(&origins[id], __ATOMIC_RELAXED);
}

void options_print(int fd) {
    struct text line;
    text_clear(&line);
    for (unsigned i = 0; i < OPTION_COUNT; i++) {
        enum option_id id = (enum option_id)i;
        text_string(&line, "hakmem: ");
        text_string(&line, rows[id].name);
        text_pad(&line, 32);
        text_char(&line, ' ');
        text_value(&line, id);
        text_pad(&line, 48);
        text_string(&line, " (");
        text_string(&line, origin_names[options_origin(id)]);
        text_string(&line, ")\n");
        text_flush(&line, fd);
    }
}
