/* A number that cannot stand still while an allocator works; see proof.h. */
#pragma once

#include <stdint.h>

#include "slots.h"

/* Looks for the allocator's own counter in the file that serves malloc. Once, before the first
 * reading: a look-up that fails allocates. */
void counter_find(const struct module *serving);

/* Reads it, and returns its name. */
const char *counter_read(uint64_t *value);
