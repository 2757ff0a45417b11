// What a program to explore provides, and main.c runs.
#pragma once

#include <string.h>

#include "explorer.h"

extern const struct program explored;
// Each must be found; ends with an operand of NULL.
extern const struct weakening weakenings[];
