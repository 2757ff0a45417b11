// A simple allocator with one planted fault, chosen by name: what the model test must find.
#pragma once

#include <stdbool.h>
#include <stddef.h>

// False when there is no fault of that name. "none" is the allocator without a fault.
bool control_choose(const char *fault);

void *control_malloc(size_t bytes);
void *control_calloc(size_t bytes);
void *control_realloc(void *block, size_t bytes);
void *control_memalign(size_t alignment, size_t bytes);
void control_free(void *block);
size_t control_usable(const void *block);
