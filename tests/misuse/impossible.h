// Sizes that no request can have.
#pragma once

#include "misuse.h"

static const size_t impossible[] = {
    PTRDIFF_MAX,   (size_t)PTRDIFF_MAX + 1, (size_t)PTRDIFF_MAX + 4096, SIZE_MAX,
    SIZE_MAX - 15, SIZE_MAX - 4095,         SIZE_MAX - 65536,
};
#define IMPOSSIBLE_COUNT (sizeof impossible / sizeof *impossible)
