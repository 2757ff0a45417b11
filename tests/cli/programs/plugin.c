// A library with a malloc of its own, and a function that uses whichever malloc it was bound to.
#include <stddef.h>

static char heap[4096];

void *malloc(size_t bytes) {
    return bytes <= sizeof heap ? heap : NULL;
}

void free(void *block) {
    (void)block;
}

int plugin_run(void) {
    char *volatile block = malloc(100);
    block[0] = 1;
    free(block);
    return block == heap;
}
