// The options, as options.def lists them: values, where each came from, and the parser that reads
// them from the environment and a profile file. Nothing here allocates or uses stdio, and no value,
// however hostile, does more than cost one line of warning.
#pragma once

#include "base/base.h"
#include "base/text.h"
#include "config/slice.h"

#include <stdbool.h>
#include <stdint.h>

enum option_type {
    OPTION_TYPE_BOOL,
    OPTION_TYPE_UINT,
    OPTION_TYPE_BYTES,
    OPTION_TYPE_MS,
    OPTION_TYPE_ENUM,
    OPTION_TYPE_STRING,
};

enum option_when {
    OPTION_WHEN_START,
    OPTION_WHEN_LIVE,
};

// In the order of precedence, lowest first.
enum option_origin {
    OPTION_ORIGIN_DEFAULT,
    OPTION_ORIGIN_MODE,
    OPTION_ORIGIN_PROFILE,
    OPTION_ORIGIN_CONF,
    OPTION_ORIGIN_ENVIRONMENT,
    OPTION_ORIGIN_RUNTIME,
};

// OPTION_<name>, one per row.
#define OPTION(name, type, initial, min, max, unit, when, help) OPTION_##name,
#define CHOICE(option, name, number, help)
#define MODE(mode, option, value)
enum option_id {
#include "config/options.def"
    OPTION_COUNT
};

// <option>_<name>, one per value of an ENUM option: mode_fast, huge_pages_always.
#define OPTION(name, type, initial, min, max, unit, when, help)
#define CHOICE(option, name, number, help) option##_##name = (number),
#define MODE(mode, option, value)
enum option_choice {
#include "config/options.def"
};

#define OPTION_FIELD_BOOL uint64_t
#define OPTION_FIELD_UINT uint64_t
#define OPTION_FIELD_BYTES uint64_t
#define OPTION_FIELD_MS uint64_t
#define OPTION_FIELD_ENUM uint64_t
#define OPTION_FIELD_STRING const char *

// START rows are written by options_load only, before anything is handed out, and by the constructor's snapshot_start, and read
// plainly. LIVE rows may be written by options_set at any time: read them through option_live.
#define OPTION(name, type, initial, min, max, unit, when, help) OPTION_FIELD_##type name;
#define CHOICE(option, name, number, help)
#define MODE(mode, option, value)
struct options {
#include "config/options.def"
};

// Holds the defaults until options_load.
HIDDEN extern struct options options;

// Relaxed, pairs with the relaxed store of options_set: each option stands alone, no reader draws a
// conclusion from one about another.
#define option_live(name) __atomic_load_n(&options.name, __ATOMIC_RELAXED)

// Reads HAKMEM_PROFILE, HAKMEM_CONF and HAKMEM_<NAME> from `envp` (may be NULL); with `secure`
// (AT_SECURE) the environment is ignored. Call before threads; a second call forgets the first.
// Warnings go to standard error; with `verbose` the effective configuration is printed there too.
// errno is preserved.
void options_load(char *const *envp, bool secure);

// Changes a LIVE option. False, with nothing changed, when the name is unknown, the option is not
// LIVE or the value is invalid. Safe from any thread.
bool options_set(const char *name, const char *value);

// Adds the value of the option called `name` to `out`, as options_set would take it. False when
// unknown.
bool options_get(const char *name, struct text *out);

// The value of an option of type STRING; NULL for one of another type.
const char *options_string(enum option_id id);

enum option_origin options_origin(enum option_id id);
HIDDEN extern uint8_t option_origins[OPTION_COUNT];  // for control/inspect.c

// Raises the default of an option of a number, while others may set it: what somebody has set, or is just about to, stays. (But for one
// who sets the very default meanwhile.)
void option_raise_default(enum option_id id, uint64_t value);

// One line per option: name, value, origin.
void options_print(int fd);

// ---- For what reads options from texts: option_sources.c, option_profile.c

// Bytes of a bad value that a warning repeats.
#define OPTION_SHOWN_MAX 64

struct option_row {
    const char *name;
    const char *unit;
    uint64_t min;
    uint64_t max;
    enum option_type type;
    enum option_when when;
    size_t offset;  // of its field in struct options
};

HIDDEN extern const struct option_row option_table[OPTION_COUNT];

// By its own name or an alias; by the same in upper case. False when there is none.
bool option_find(struct slice name, enum option_id *id);
bool option_find_upper(struct slice name, enum option_id *id);

// Of every type but STRING.
uint64_t option_load(enum option_id id);
void option_store_number(enum option_id id, uint64_t value, enum option_origin origin);
// False when the text is no value of the option, or it is a STRING.
bool option_parse(enum option_id id, struct slice text, uint64_t *value);

// Of any type. False, with nothing changed, when the text is no value of the option.
bool option_store(enum option_id id, struct slice text, enum option_origin origin);

// Adds the value in force; what a value is to be ("is not a number of ...").
void option_text(struct text *out, enum option_id id);
void option_text_expected(struct text *line, enum option_id id);

// Every option as by default; what a mode presets.
void options_reset(void);
void options_preset(uint64_t mode);
