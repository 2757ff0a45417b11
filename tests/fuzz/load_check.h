// Loads options and compares what came of it with a second, simple reading of the same text.
#pragma once

#include "config/options.h"

// options_load() under every check that needs no knowledge of the text: errno is kept, every value
// lies within its row's bounds, each line of warning is whole and printable, `get` prints what `set`
// takes, and a second load ends the same. The number of lines of warning.
unsigned load_checked(char *const *envp);

// Longer values, leading zeros for the most part, are not read a second time.
enum { EXPECTED_BYTES_MAX = 64 };

// A number in the options' syntax, read by libc: digits, and for sizes at most one suffix. At most
// EXPECTED_BYTES_MAX bytes.
bool expect_number(const char *value, size_t count, bool is_size, uint64_t *number);

// Notes a setting "name = value" that the text holds. Of several the first counts, valid or not.
// Whether it is right in a profile, as far as it is read here: numbers.
enum setting { SETTING_UNSURE, SETTING_RIGHT, SETTING_WRONG };
enum setting expect_setting(const char *name, size_t name_count, const char *value, size_t count);

// Every number that the text sets has the expected value and this origin, every other has not; then
// the expectations are forgotten.
void expectations_check(enum option_origin origin);

// Nothing has this origin; then the expectations are forgotten.
void expectations_refuse(enum option_origin origin);
