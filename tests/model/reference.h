// The simple reference: the set of live address ranges, ordered by address, outside any malloc.
// A new range that touches a live one is an overlap, whichever thread owns it.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Room for `capacity` live ranges.
void reference_init(uint32_t capacity);

// Adds [start, start + bytes). False when it overlaps a live range, which *other_start and
// *other_bytes then describe.
bool reference_add(uintptr_t start, size_t bytes, uintptr_t *other_start, size_t *other_bytes);

// Removes the range that starts at `start`; false when there is none.
bool reference_remove(uintptr_t start);

uint32_t reference_count(void);
