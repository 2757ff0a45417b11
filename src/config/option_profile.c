#include "config/option_profile.h"

#include <string.h>
#include <unistd.h>

#include "config/options.h"
#include "config/profile.h"

enum { PATH_SHOWN_MAX = 128 };

// What a profile may do to an option: profile.def.
enum tuning { TUNING_NONE, TUNING_ANY, TUNING_RAISE, TUNING_LOWER };
#define TUNED(option, how) [OPTION_##option] = TUNING_##how,
static const uint8_t tunings[OPTION_COUNT] = {
#include "config/profile.def"
};

// Among what every process reads anyway (.data), so that without a profile nothing else is.
const struct profile *profile_in_force __attribute__((section(".data"))) = NULL;
static struct profile profile;

const char *(*profile_accept)(const struct profile *profile);

// What the profile sets, until it is known to be right as a whole.
static struct {
    struct slice name, value;
    uint64_t number;
    unsigned line;  // 0: not set
} staged[OPTION_COUNT];

static struct profile_file file;
static bool is_read, is_staged;

// The one line about a profile that does not count.
static void refuse(const struct profile_error *error) {
    struct text line;
    enum option_id id;
    text_clear(&line);
    text_string(&line, "hakmem: profile '");
    text_escaped(&line, file.path, strlen(file.path), PATH_SHOWN_MAX);
    text_char(&line, '\'');
    if (error->line != 0) {
        text_string(&line, " line ");
        text_unsigned(&line, error->line);
        text_string(&line, ": ");
        text_escaped(&line, error->name.bytes, error->name.count, OPTION_SHOWN_MAX);
    }
    if (error->value.count != 0) {
        text_string(&line, " '");
        text_escaped(&line, error->value.bytes, error->value.count, OPTION_SHOWN_MAX);
        text_char(&line, '\'');
    }
    if (error->what != NULL) {
        text_char(&line, ' ');
        text_string(&line, error->what);
    } else if (option_find(error->name, &id)) {
        option_text_expected(&line, id);
    }
    if (file.error != 0) {
        text_string(&line, " (error ");
        text_unsigned(&line, (unsigned)file.error);
        text_char(&line, ')');
    }
    text_string(&line, "; the default is used\n");
    text_flush(&line, STDERR_FILENO);
}

static bool setting_stage(struct slice name, struct slice value, unsigned line, const char **what) {
    enum option_id id;
    uint64_t number;
    if (!option_find(name, &id)) {
        *what = "is no option";
    } else if (tunings[id] == TUNING_NONE) {
        *what = "is not for a profile to set";
    } else if (staged[id].line != 0) {
        *what = "is there twice";
    } else if (option_parse(id, value, &number)) {
        if (id == OPTION_mode && number == mode_research) {
            // It measures: what it sets has no row in profile.def.
            *what = "is not for a profile to set";
            return false;
        }
        staged[id].name = name;
        staged[id].value = value;
        staged[id].number = number;
        staged[id].line = line;
        return true;
    }
    return false;
}

void option_profile_forget(void) {
    if (is_read) {
        memset(staged, 0, sizeof staged);
        profile_in_force = NULL;
        is_read = is_staged = false;
    }
}

void option_profile_stage(const char *name) {
    struct profile_error error = {0};
    is_read = true;
    if (!profile_read(name, &file)) {
        error.what = file.what;
        refuse(&error);
    } else if (!profile_parse(file.text, setting_stage, &profile, &error)) {
        refuse(&error);
    } else {
        is_staged = true;
    }
}

// Whether everything that is staged may be, over the defaults and what the environment's mode presets.
static bool is_allowed(void) {
    struct profile_error error = {0};
    for (unsigned i = 0; i < OPTION_COUNT && error.what == NULL; i++) {
        const uint64_t number = staged[i].number;
        if (staged[i].line == 0) {
            continue;
        }
        error = (struct profile_error){staged[i].line, staged[i].name, staged[i].value, NULL};
        if (tunings[i] == TUNING_RAISE && number < option_load((enum option_id)i)) {
            error.what = "lowers a check, which a profile may not";
        } else if (tunings[i] == TUNING_LOWER && number > option_load((enum option_id)i)) {
            error.what = "raises a limit, which a profile may not";
        }
    }
    if (error.what == NULL) {
        error = (struct profile_error){.what = profile_accept == NULL ? NULL
                                                                      : profile_accept(&profile)};
    }
    if (error.what != NULL) {
        refuse(&error);
    }
    return error.what == NULL;
}

void option_profile_apply(void) {
    if (!is_staged || !is_allowed()) {
        option_profile_forget();
        return;
    }
    profile_in_force = &profile;
    if (staged[OPTION_mode].line != 0 && options_origin(OPTION_mode) == OPTION_ORIGIN_DEFAULT) {
        option_store_number(OPTION_mode, staged[OPTION_mode].number, OPTION_ORIGIN_PROFILE);
        options_preset(options.mode);
    }
    for (unsigned i = 0; i < OPTION_COUNT; i++) {
        if (staged[i].line != 0 && i != OPTION_mode) {
            option_store_number((enum option_id)i, staged[i].number, OPTION_ORIGIN_PROFILE);
        }
    }
}

void option_profile_print(int fd) {
    struct text line;
    if (profile_in_force == NULL) {
        return;
    }
    text_clear(&line);
    text_string(&line, "hakmem: profile");
    text_pad(&line, 32);
    text_char(&line, ' ');
    text_escaped(&line, file.path, strlen(file.path), PATH_SHOWN_MAX);
    text_pad(&line, 48);
    text_string(&line, " (");
    text_unsigned(&line, profile.class_count);
    text_string(&line, " size classes, ");
    text_unsigned(&line, profile.prewarm_count);
    text_string(&line, " made ready)\n");
    text_flush(&line, fd);
}
