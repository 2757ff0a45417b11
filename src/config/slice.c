#include "config/slice.h"

#include <string.h>

struct slice slice_of(const char *string) {
    return (struct slice){string, strlen(string)};
}

bool slice_is(struct slice slice, const char *string) {
    return strlen(string) == slice.count && memcmp(slice.bytes, string, slice.count) == 0;
}

static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static char upper(char c) {
    return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
}

bool slice_is_word(struct slice slice, const char *string) {
    if (strlen(string) != slice.count) {
        return false;
    }
    for (size_t i = 0; i < slice.count; i++) {
        if (lower(slice.bytes[i]) != string[i]) {
            return false;
        }
    }
    return true;
}

bool slice_is_upper(struct slice slice, const char *string) {
    if (strlen(string) != slice.count) {
        return false;
    }
    for (size_t i = 0; i < slice.count; i++) {
        if (slice.bytes[i] != upper(string[i])) {
            return false;
        }
    }
    return true;
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

struct slice slice_trim(struct slice slice) {
    while (slice.count > 0 && is_blank(slice.bytes[0])) {
        slice.bytes++;
        slice.count--;
    }
    while (slice.count > 0 && is_blank(slice.bytes[slice.count - 1])) {
        slice.count--;
    }
    return slice;
}

struct slice slice_next(struct slice *rest, char separator) {
    const char *found = memchr(rest->bytes, separator, rest->count);
    struct slice part = *rest;
    if (found == NULL) {
        *rest = (struct slice){rest->bytes + rest->count, 0};
        return part;
    }
    part.count = (size_t)(found - rest->bytes);
    *rest = (struct slice){found + 1, rest->count - part.count - 1};
    return part;
}

bool slice_decimal(struct slice slice, uint64_t *value) {
    uint64_t sum = 0;
    if (slice.count == 0) {
        return false;
    }
    for (size_t i = 0; i < slice.count; i++) {
        if (slice.bytes[i] < '0' || slice.bytes[i] > '9') {
            return false;
        }
        if (__builtin_mul_overflow(sum, 10, &sum) ||
            __builtin_add_overflow(sum, (uint64_t)(slice.bytes[i] - '0'), &sum)) {
            return false;
        }
    }
    *value = sum;
    return true;
}

bool slice_hexadecimal(struct slice slice, uint64_t *value) {
    static const char digits[] = "0123456789abcdef";
    uint64_t sum = 0;
    if (slice.count == 0 || slice.count > 16) {
        return false;
    }
    for (size_t i = 0; i < slice.count; i++) {
        const char *digit = memchr(digits, lower(slice.bytes[i]), sizeof digits - 1);
        if (digit == NULL) {
            return false;
        }
        sum = sum << 4 | (uint64_t)(digit - digits);
    }
    *value = sum;
    return true;
}

bool slice_size(struct slice slice, uint64_t *value) {
    static const char suffixes[] = "kmgt";
    uint64_t scale = 1;
    if (slice.count > 1) {
        char last = lower(slice.bytes[slice.count - 1]);
        const char *suffix = memchr(suffixes, last, sizeof suffixes - 1);
        if (suffix != NULL) {
            scale <<= 10 * (suffix - suffixes + 1);
            slice.count--;
        }
    }
    return slice_decimal(slice, value) && !__builtin_mul_overflow(*value, scale, value);
}

bool slice_bool(struct slice slice, uint64_t *value) {
    static const char *const words[][2] = {
        {"0", "1"}, {"false", "true"}, {"no", "yes"}, {"off", "on"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        for (uint64_t truth = 0; truth < 2; truth++) {
            if (slice_is_word(slice, words[i][truth])) {
                *value = truth;
                return true;
            }
        }
    }
    return false;
}
