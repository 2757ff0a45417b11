// Loads options and compares what came of it with a second, simple reading of the same text.
#pragma once

#include "config/options.h"

// options_load() under every check that needs no knowledge of the text: errno is kept, every value
// lies within its row's bounds, each line of warning is whole and printable, `get` prints what `set`
// takes, and a second load ends the same.
void load_checked(char *const *envp);

// Notes a setting "name = value" that the text holds. Of several valid ones the last counts with
// `later_wins`, else the first of all, valid or not.
void expect_setting(const char *name, size_t name_count, const char *value, size_t count,
                    bool later_wins);

// Every number that the text sets has the expected value and this origin, every other has not; then
// the expectations are forgotten.
void expectations_check(enum option_origin origin);
