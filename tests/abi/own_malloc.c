// A program with a malloc of its own, of the names that most such programs have: reallocarray is the C library's, and
// calls the program's realloc. 0, or the line of what is wrong.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static char pool[1 << 20] __attribute__((aligned(16)));
static size_t used;

void *malloc(size_t bytes) {
    size_t *block = (size_t *)(void *)(pool + used);
    if (bytes > sizeof pool - 32 || used > sizeof pool - 32 - bytes) {
        return NULL;
    }
    used += (bytes + 31) / 16 * 16;
    block[0] = bytes;
    return block + 2;
}

void free(void *block) {
    (void)block;
}

void *calloc(size_t count, size_t bytes) {
    return malloc(count * bytes);
}

void *realloc(void *block, size_t bytes) {
    void *other = malloc(bytes);
    if (block != NULL && other != NULL) {
        const size_t old_bytes = ((const size_t *)block)[-2];
        memcpy(other, block, old_bytes < bytes ? old_bytes : bytes);
    }
    return other;
}

static int is_own(const void *block) {
    return (uintptr_t)block - (uintptr_t)pool < sizeof pool;
}

int main(void) {
    char *text = malloc(16);
    strcpy(text, "text");
    text = reallocarray(text, 10, 100);
    if (!is_own(text) || strcmp(text, "text") != 0) {
        return __LINE__;
    }
    if (!is_own(reallocarray(NULL, 3, 5)) || reallocarray(text, SIZE_MAX, 2) != NULL) {
        return __LINE__;
    }
    return 0;
}
