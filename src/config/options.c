#include "config/options.h"

#include "base/base.h"

#include <stddef.h>
#include <string.h>

enum {
    STRING_BYTES_MAX = 4095,
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
const struct option_row option_table[OPTION_COUNT] = {
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

// ---- Values

uint64_t option_load(enum option_id id) {
    const char *field = (const char *)&options + option_table[id].offset;
    // Relaxed, as option_live.
    return __atomic_load_n((const uint64_t *)(const void *)field, __ATOMIC_RELAXED);
}

static void origin_store(enum option_id id, enum option_origin origin) {
    // Relaxed, as declared.
    __atomic_store_n(&origins[id], (uint8_t)origin, __ATOMIC_RELAXED);
}

void option_store_number(enum option_id id, uint64_t value, enum option_origin origin) {
    char *field = (char *)&options + option_table[id].offset;
    // Relaxed, pairs with option_live.
    __atomic_store_n((uint64_t *)(void *)field, value, __ATOMIC_RELAXED);
    origin_store(id, origin);
}

void option_raise_default(enum option_id id, uint64_t value) {
    uint64_t *field = (void *)((char *)&options + option_table[id].offset);
    uint64_t initial;
    memcpy(&initial, (const char *)&defaults + option_table[id].offset, sizeof initial);
    if (options_origin(id) == OPTION_ORIGIN_DEFAULT && value > initial) {
        // Relaxed, pairs with option_live. Who sets an option writes the value first and the origin after it.
        __atomic_compare_exchange_n(field, &initial, value, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED);
    }
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

bool option_parse(enum option_id id, struct slice text, uint64_t *value) {
    bool parsed = false;
    switch (option_table[id].type) {
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
    return parsed && *value >= option_table[id].min && *value <= option_table[id].max;
}

static const char **string_field(enum option_id id) {
    return (const char **)(void *)((char *)&options + option_table[id].offset);
}

static bool string_store(enum option_id id, struct slice text, enum option_origin origin) {
    if (text.count > option_table[id].max || memchr(text.bytes, '\0', text.count) != NULL) {
        return false;
    }
    memcpy(string_copies[id], text.bytes, text.count);
    string_copies[id][text.count] = '\0';
    *string_field(id) = string_copies[id];
    origin_store(id, origin);
    return true;
}

bool option_store(enum option_id id, struct slice text, enum option_origin origin) {
    uint64_t value = 0;
    if (option_table[id].type == OPTION_TYPE_STRING) {
        return string_store(id, text, origin);
    }
    if (!option_parse(id, text, &value)) {
        return false;
    }
    option_store_number(id, value, origin);
    return true;
}

void option_text(struct text *out, enum option_id id) {
    if (option_table[id].type == OPTION_TYPE_STRING) {
        const char *text = *string_field(id);
        text_escaped(out, text, strlen(text), STRING_BYTES_MAX);
        return;
    }
    uint64_t value = option_load(id);
    for (size_t i = 0; i < COUNT_OF(choices); i++) {
        if (choices[i].option == id && choices[i].number == value) {
            text_string(out, choices[i].name);
            return;
        }
    }
    text_unsigned(out, value);
}

void option_text_expected(struct text *line, enum option_id id) {
    const struct option_row *row = &option_table[id];
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

// An option by its own name or an alias, as `is` compares them.
static bool option_find_as(struct slice name, bool (*is)(struct slice slice, const char *string),
                           enum option_id *id) {
    for (unsigned i = 0; i < OPTION_COUNT; i++) {
        if (is(name, option_table[i].name)) {
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

bool option_find(struct slice name, enum option_id *id) {
    return option_find_as(name, slice_is, id);
}

bool option_find_upper(struct slice name, enum option_id *id) {
    return option_find_as(name, slice_is_upper, id);
}

void options_preset(uint64_t mode) {
    for (size_t i = 0; i < COUNT_OF(presets); i++) {
        if (presets[i].mode == mode) {
            option_store_number(presets[i].option, presets[i].value, OPTION_ORIGIN_MODE);
        }
    }
}

void options_reset(void) {
    options = defaults;
    memset(origins, OPTION_ORIGIN_DEFAULT, sizeof origins);
}

// ---- At run time

bool options_set(const char *name, const char *value) {
    enum option_id id;
    if (name == NULL || value == NULL || !option_find(slice_of(name), &id) ||
        option_table[id].when != OPTION_WHEN_LIVE) {
        return false;
    }
    return option_store(id, slice_of(value), OPTION_ORIGIN_RUNTIME);
}

bool options_get(const char *name, struct text *out) {
    enum option_id id;
    if (name == NULL || !option_find(slice_of(name), &id)) {
        return false;
    }
    option_text(out, id);
    return true;
}

const char *options_string(enum option_id id) {
    return option_table[id].type == OPTION_TYPE_STRING ? *string_field(id) : NULL;
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
        text_string(&line, option_table[id].name);
        text_pad(&line, 32);
        text_char(&line, ' ');
        option_text(&line, id);
        text_pad(&line, 48);
        text_string(&line, " (");
        text_string(&line, origin_names[options_origin(id)]);
        text_string(&line, ")\n");
        text_flush(&line, fd);
    }
}
