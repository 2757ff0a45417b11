// Faults planted in the parser of options, chosen by FUZZ_PLANTED: what fuzz_options and fuzz_profile
// must find. Linked with --wrap.
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "config/profile.h"
#include "config/slice.h"

void __real_text_escaped(struct text *text, const char *bytes, size_t count, size_t count_max);
bool __real_slice_decimal(struct slice slice, uint64_t *value);
void __wrap_text_escaped(struct text *text, const char *bytes, size_t count, size_t count_max);
bool __wrap_slice_decimal(struct slice slice, uint64_t *value);

static bool is_planted(const char *name) {
    const char *planted = getenv("FUZZ_PLANTED");
    return planted != NULL && strcmp(planted, name) == 0;
}

// Room for the bytes as they are, not for what escaping makes of them.
void __wrap_text_escaped(struct text *text, const char *bytes, size_t count, size_t count_max) {
    if (!is_planted("escapes")) {
        __real_text_escaped(text, bytes, count, count_max);
        return;
    }
    struct text whole;
    text_clear(&whole);
    __real_text_escaped(&whole, bytes, count, count_max);
    char copy[128];
    memcpy(copy, whole.bytes, whole.count);
    text_bytes(text, copy, whole.count);
}

// Digits without a look at the limits of the number.
bool __wrap_slice_decimal(struct slice slice, uint64_t *value) {
    if (!is_planted("wraps") ||
        !__real_slice_decimal((struct slice){slice.bytes, slice.count != 0}, value)) {
        return __real_slice_decimal(slice, value);
    }
    *value = 0;
    for (size_t i = 0; i < slice.count; i++) {
        if (slice.bytes[i] < '0' || slice.bytes[i] > '9') {
            return false;
        }
        *value = *value * 10 + (uint64_t)(slice.bytes[i] - '0');
    }
    return true;
}

bool __real_profile_parse(struct slice text, profile_setting *setting, struct profile *out,
                          struct profile_error *error);
bool __wrap_profile_parse(struct slice text, profile_setting *setting, struct profile *out,
                          struct profile_error *error);

// A profile counts as far as it was read: up to a wrong line, or without its last size classes. Or its
// last line about blocks to have ready is lost.
bool __wrap_profile_parse(struct slice text, profile_setting *setting, struct profile *out,
                          struct profile_error *error) {
    const bool done = __real_profile_parse(text, setting, out, error);
    out->prewarm_count -= done && out->prewarm_count != 0 && is_planted("lost-line");
    return done || (is_planted("half") && error->what == NULL) ||
           (is_planted("cut-table") && error->value.count == 0 && out->class_count != 0);
}
