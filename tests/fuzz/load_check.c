#include "load_check.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

static const char suffixes[] = "kmgt";

// One line for the cut, one per warning, one per option under `verbose`.
#define LINES_MAX (9 + OPTION_COUNT)

#define OPTION(name, type, initial, min, max, unit, when, help) \
    {#name, (min), (max), OPTION_TYPE_##type, OPTION_WHEN_##when},
#define CHOICE(option, name, number, help)
#define MODE(mode, option, value)
static const struct row {
    const char *name;
    uint64_t min, max;
    enum option_type type;
    enum option_when when;
} rows[OPTION_COUNT] = {
#include "config/options.def"
};

// How a profile may set it.
enum tuning { NONE, ANY, RAISE, LOWER };
#define TUNED(option, how) [OPTION_##option] = (how),
static const uint8_t tunings[OPTION_COUNT] = {
#include "config/profile.def"
};

#define ALIAS(alias, option) {#alias, OPTION_##option},
static const struct {
    const char *name;
    enum option_id id;
} aliases[] = {
#include "config/aliases.def"
};

static struct expectation {
    bool seen;
    bool valid;    // the setting that counts is a number within bounds
    bool unknown;  // a value too long to be read here
    uint64_t value;
} expectations[OPTION_COUNT];

static uint64_t value_of(unsigned id) {
    // Every row is one field of eight bytes.
    uint64_t value;
    memcpy(&value, (const char *)&options + id * sizeof value, sizeof value);
    return value;
}

static bool is_number(unsigned id) {
    return rows[id].type == OPTION_TYPE_UINT || rows[id].type == OPTION_TYPE_MS ||
           rows[id].type == OPTION_TYPE_BYTES;
}

static unsigned check_said(void) {
    size_t count;
    const char *said = fuzz_stderr_end(&count);
    fuzz_require(strlen(said) == count);
    unsigned lines = 0;
    for (const char *line = said; *line != '\0'; lines++) {
        const char *end = strchr(line, '\n');
        fuzz_require(end != NULL && end - line < TEXT_BYTES_MAX);
        fuzz_require(strncmp(line, "hakmem: ", 8) == 0);
        for (const char *c = line; c < end; c++) {
            fuzz_require(*c >= 0x20 && *c < 0x7f);
        }
        line = end + 1;
    }
    fuzz_require(lines <= LINES_MAX);
    return lines;
}

static void check_values(void) {
    for (unsigned id = 0; id < OPTION_COUNT; id++) {
        if (rows[id].type == OPTION_TYPE_STRING) {
            fuzz_require(strlen(options.report) <= rows[id].max);
            continue;
        }
        fuzz_require(value_of(id) >= rows[id].min && value_of(id) <= rows[id].max);
        struct text text;
        text_clear(&text);
        fuzz_require(options_get(rows[id].name, &text));
        char value[TEXT_BYTES_MAX + 1];
        memcpy(value, text.bytes, text.count);
        value[text.count] = '\0';
        const uint64_t before = value_of(id);
        fuzz_require(options_set(rows[id].name, value) == (rows[id].when == OPTION_WHEN_LIVE));
        fuzz_require(value_of(id) == before);
    }
}

unsigned load_checked(char *const *envp) {
    fuzz_stderr_begin();
    errno = 55;
    options_load(envp, false);
    fuzz_require(errno == 55);
    const unsigned lines = check_said();
    const struct options first = options;
    check_values();
    fuzz_stderr_begin();
    options_load(envp, false);
    fuzz_require(check_said() == lines);
    fuzz_require(memcmp(&first, &options, sizeof first) == 0);
    return lines;
}

bool expect_number(const char *value, size_t count, bool is_size, uint64_t *number) {
    char text[EXPECTED_BYTES_MAX + 1];
    memcpy(text, value, count);
    text[count] = '\0';
    if (strlen(text) != count || !isdigit((unsigned char)text[0])) {
        return false;
    }
    char *end;
    errno = 0;
    unsigned __int128 wide = strtoull(text, &end, 10);
    if (errno != 0) {
        return false;
    }
    const char *suffix = strchr(suffixes, tolower((unsigned char)*end));
    if (*end != '\0' && suffix != NULL && is_size) {
        wide <<= 10 * (suffix - suffixes + 1);
        end++;
    }
    if (*end != '\0' || wide > UINT64_MAX) {
        return false;
    }
    *number = (uint64_t)wide;
    return true;
}

static bool is_called(const char *name, const char *text, size_t count) {
    return strlen(name) == count && memcmp(name, text, count) == 0;
}

// OPTION_COUNT: there is none.
static unsigned find_option(const char *name, size_t count) {
    for (unsigned id = 0; id < OPTION_COUNT; id++) {
        if (is_called(rows[id].name, name, count)) {
            return id;
        }
    }
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++) {
        if (is_called(aliases[i].name, name, count)) {
            return aliases[i].id;
        }
    }
    return OPTION_COUNT;
}

// Whether a profile may set it so, over what is in force when nothing is set.
static bool may_set(unsigned id, uint64_t number) {
    static uint64_t before[OPTION_COUNT];
    static bool is_known;
    if (!is_known) {
        options_load(NULL, false);
        for (unsigned each = 0; each < OPTION_COUNT; each++) {
            before[each] = value_of(each);
        }
        is_known = true;
    }
    return tunings[id] == ANY || (tunings[id] == RAISE && number >= before[id]) ||
           (tunings[id] == LOWER && number <= before[id]);
}

enum setting expect_setting(const char *name, size_t name_count, const char *value, size_t count) {
    const unsigned id = find_option(name, name_count);
    if (id == OPTION_COUNT || !is_number(id)) {
        return SETTING_UNSURE;
    }
    struct expectation *expectation = &expectations[id];
    uint64_t number = 0;
    if (expectation->seen) {
        return SETTING_WRONG;
    }
    expectation->seen = true;
    if (count > EXPECTED_BYTES_MAX) {
        expectation->unknown = true;
        return SETTING_UNSURE;
    }
    if (!expect_number(value, count, rows[id].type == OPTION_TYPE_BYTES, &number) ||
        number < rows[id].min || number > rows[id].max) {
        return SETTING_WRONG;
    }
    expectation->valid = true;
    expectation->value = number;
    return may_set(id, number) ? SETTING_RIGHT : SETTING_WRONG;
}

void expectations_check(enum option_origin origin) {
    for (unsigned id = 0; id < OPTION_COUNT; id++) {
        const struct expectation *expectation = &expectations[id];
        if (!is_number(id) || expectation->unknown) {
            continue;
        }
        const bool set = options_origin((enum option_id)id) == origin;
        if (set != expectation->valid || (set && value_of(id) != expectation->value)) {
            fuzz_fail("%s is %llu, by the text %s %llu", rows[id].name,
                      (unsigned long long)value_of(id), expectation->valid ? "it is" : "it is not",
                      (unsigned long long)expectation->value);
        }
    }
    memset(expectations, 0, sizeof expectations);
}

void expectations_refuse(enum option_origin origin) {
    for (unsigned id = 0; id < OPTION_COUNT; id++) {
        fuzz_require(options_origin((enum option_id)id) != origin);
    }
    memset(expectations, 0, sizeof expectations);
}
