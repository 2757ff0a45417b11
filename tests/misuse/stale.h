// Whether what a block held can be seen after its free. Says "stale" or "clear".
#pragma once

#include "misuse.h"

#define SECRET_KEY 4711

static char *secret_block(size_t bytes) {
    char *block = (char *)malloc(bytes);
    void *keep = malloc(bytes);  // keeps the slab where it is
    require(block != NULL && keep != NULL);
    pattern_fill(block, bytes, SECRET_KEY);
    about_block(block, block);
    return block;
}

// The pattern depends on the offset: any 16 bytes of it in their place are the secret's.
static bool shows_secret(const char *block, size_t bytes) {
    static char expected[MIB];
    static bool filled;
    if (!filled) {
        pattern_fill(expected, sizeof expected, SECRET_KEY);
        filled = true;
    }
    for (size_t at = 0; at + 16 <= bytes && at + 16 <= sizeof expected; at += 16) {
        if (memcmp(block + at, expected + at, 16) == 0) {
            return true;
        }
    }
    return false;
}

BEHAVIOUR_UNUSED static void say_whether_stale(const char *block, size_t bytes) {
    behaviour_say(shows_secret(block, bytes) ? "stale" : "clear");
}

BEHAVIOUR_UNUSED static void look_into_new_blocks(size_t bytes, int count) {
    free(secret_block(bytes));
    bool stale = false;
    for (int i = 0; i < count; i++) {
        const char *block = (const char *)malloc(bytes);
        require(block != NULL);
        stale = stale || shows_secret(block, bytes);
    }
    behaviour_say(stale ? "stale" : "clear");
}
