// Brings a malloc of its own, which the linker exports because libc has one too.
#include <stddef.h>
#include <string.h>

static char heap[1 << 20];
static size_t used;

void *malloc(size_t bytes) {
    char *block = heap + used;
    used += (bytes + 15) & ~(size_t)15;
    return used <= sizeof heap ? block : NULL;
}

void free(void *block) {
    (void)block;
}

void *calloc(size_t count, size_t bytes) {
    return malloc(count * bytes);
}

void *realloc(void *block, size_t bytes) {
    void *copy = malloc(bytes);
    return copy != NULL && block != NULL ? memcpy(copy, block, bytes) : copy;
}

int main(void) {
    char *volatile block = malloc(10);
    block[0] = 1;
    free(block);
    return 4;
}
