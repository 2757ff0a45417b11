// Freed blocks whose first two words are made to point to memory of the program. An allocator that
// keeps its free list there hands that memory out.
#pragma once

#include "misuse.h"

enum { AIMED = 40 };

static _Alignas(64) unsigned char target[4096];

static bool in_target(const void *block) {
    return (uintptr_t)block - (uintptr_t)target < sizeof target;
}

static void aim_free_blocks(size_t bytes, bool encoded) {
    void **blocks[AIMED];
    for (int i = 0; i < AIMED; i++) {
        blocks[i] = (void **)malloc(bytes);
        require(blocks[i] != NULL);
    }
    for (int i = 0; i < AIMED; i++) {
        free(blocks[i]);
    }
    for (int i = 0; i < AIMED; i++) {
        const uintptr_t mask = encoded ? (uintptr_t)blocks[i] >> 12 : 0;
        void **words = (void **)opaque_pointer(blocks[i]);
        words[0] = words[1] = (void *)(((uintptr_t)target + 1024) ^ mask);
    }
    for (int i = 0; i < 4 * AIMED; i++) {
        if (in_target(malloc(bytes))) {
            misuse_end(END_CORRUPT, "malloc handed out memory of the program");
        }
    }
}
