// A part of a longer text, not NUL-terminated, and the values that option texts are parsed into.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct slice {
    const char *bytes;
    size_t count;
};

struct slice slice_of(const char *string);
bool slice_is(struct slice slice, const char *string);
// The slice is `string`, which is lower case, in whatever case or in upper case.
bool slice_is_word(struct slice slice, const char *string);
bool slice_is_upper(struct slice slice, const char *string);
// Without blanks and carriage returns at both ends.
struct slice slice_trim(struct slice slice);
// Cuts the part before the first `separator` off `rest` and returns it; all of it when there is
// none.
struct slice slice_next(struct slice *rest, char separator);

// Each returns false, with *value undefined, when the slice is anything but such a value.
// Digits only: no sign, no blank, at most 2^64-1.
bool slice_decimal(struct slice slice, uint64_t *value);
// One to 16 hexadecimal digits, of either case.
bool slice_hexadecimal(struct slice slice, uint64_t *value);
// Digits and at most one of K, M, G, T, as powers of 1024.
bool slice_size(struct slice slice, uint64_t *value);
// 0 1, false true, no yes, off on.
bool slice_bool(struct slice slice, uint64_t *value);
