// How many heaps there are, as the allocator's statistics tell.
#pragma once

#include "behaviour.h"

extern int hakmem_stats_json(int (*write)(void *context, const char *text, size_t bytes),
                             void *context) __attribute__((weak));

static char heaps_stats[256 * 1024];

static int heaps_append(void *context, const char *text, size_t bytes) {
    size_t *length = context;
    require(*length + bytes < sizeof heaps_stats);
    memcpy(heaps_stats + *length, text, bytes);
    *length += bytes;
    return 0;
}

// Heaps that exist; 0 where hakmem does not serve.
static long heaps_count(void) {
    if (hakmem_stats_json == NULL) {
        return 0;
    }
    size_t length = 0;
    require(hakmem_stats_json(heaps_append, &length) == 0);
    heaps_stats[length] = '\0';
    const char *found = strstr(heaps_stats, "\"heaps\":");
    require(found != NULL);
    return strtol(found + strlen("\"heaps\":"), NULL, 10);
}
