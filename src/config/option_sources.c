// The sources of options at start-up: HAKMEM_PROFILE, HAKMEM_CONF, HAKMEM_<NAME>.
#include "config/option_profile.h"
#include "config/options.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { WARNINGS_MAX = 8 };

static unsigned warning_count;

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

static void text_place(struct text *line, struct slice name, enum option_origin origin) {
    text_string(line, "hakmem: option ");
    if (origin == OPTION_ORIGIN_ENVIRONMENT) {
        text_string(line, "HAKMEM_");
    }
    text_escaped(line, name.bytes, name.count, OPTION_SHOWN_MAX);
    if (origin == OPTION_ORIGIN_CONF) {
        text_string(line, " in HAKMEM_CONF");
    }
    text_string(line, ": ");
}

static void warn_unknown(struct slice name, enum option_origin origin) {
    struct text line;
    if (!warning_allowed()) {
        return;
    }
    text_clear(&line);
    text_place(&line, name, origin);
    text_string(&line, "unknown, ignored\n");
    text_flush(&line, STDERR_FILENO);
}

static void warn_value(enum option_id id, struct slice name, struct slice value,
                       enum option_origin origin) {
    struct text line;
    if (!warning_allowed()) {
        return;
    }
    text_clear(&line);
    text_place(&line, name, origin);
    text_string(&line, "value '");
    text_escaped(&line, value.bytes, value.count, OPTION_SHOWN_MAX);
    text_string(&line, "'");
    option_text_expected(&line, id);
    text_string(&line, ", kept ");
    option_text(&line, id);
    text_string(&line, "\n");
    text_flush(&line, STDERR_FILENO);
}

static void warn_item(struct slice item, enum option_origin origin) {
    struct text line;
    if (!warning_allowed()) {
        return;
    }
    text_clear(&line);
    text_place(&line, item, origin);
    text_string(&line, "has no ':' and value, ignored\n");
    text_flush(&line, STDERR_FILENO);
}

// ---- Sources

// The mode decides the presets, and a warning names the value that stays in force: so every source
// is walked twice, first for the mode alone, then, over the presets, for the rest.
enum pass {
    PASS_MODE,
    PASS_REST,
};

static void setting_apply(enum option_id id, struct slice shown_name, struct slice value,
                          enum option_origin origin, enum pass pass) {
    if ((id == OPTION_mode) != (pass == PASS_MODE)) {
        return;
    }
    if (!option_store(id, value, origin)) {
        warn_value(id, shown_name, value, origin);
    }
}

// One item of HAKMEM_CONF: name:value.
static void item_apply(struct slice item, enum pass pass) {
    const enum option_origin origin = OPTION_ORIGIN_CONF;
    enum option_id id;
    struct slice rest = slice_trim(item);
    if (rest.count == 0) {
        return;
    }
    if (memchr(rest.bytes, ':', rest.count) == NULL) {
        if (pass == PASS_REST) {
            warn_item(rest, origin);
        }
        return;
    }
    struct slice name = slice_trim(slice_next(&rest, ':'));
    if (option_find(name, &id)) {
        setting_apply(id, name, slice_trim(rest), origin, pass);
    } else if (pass == PASS_REST) {
        warn_unknown(name, origin);
    }
}

static void conf_apply(const char *conf, enum pass pass) {
    struct slice text = slice_of(conf);
    while (text.count > 0) {
        item_apply(slice_next(&text, ','), pass);
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
        if (option_find_upper(name, &id)) {
            // Of several variables of one name the first counts, as with getenv.
            if (!seen[id]) {
                seen[id] = 1;
                setting_apply(id, name, value, OPTION_ORIGIN_ENVIRONMENT, pass);
            }
        } else if (pass == PASS_REST && !slice_is(name, "CONF") && !slice_is(name, "PROFILE")) {
            warn_unknown(name, OPTION_ORIGIN_ENVIRONMENT);
        }
    }
}

static void sources_apply(char *const *envp) {
    const char *path = environment_find(envp, "PROFILE");
    const char *conf = environment_find(envp, "CONF");
    if (path != NULL) {
        option_profile_stage(path);
    }
    for (enum pass pass = PASS_MODE; pass <= PASS_REST; pass++) {
        if (pass == PASS_REST) {
            options_preset(options.mode);
            option_profile_apply();
        }
        if (conf != NULL) {
            conf_apply(conf, pass);
        }
        environment_apply(envp, pass);
    }
}

void options_load(char *const *envp, bool secure) {
    int saved_errno = errno;
    options_reset();
    option_profile_forget();
    warning_count = 0;
    if (envp != NULL && !secure) {
        sources_apply(envp);
    }
    if (options.verbose) {
        options_print(STDERR_FILENO);
        option_profile_print(STDERR_FILENO);
    }
    errno = saved_errno;
}
