// Has an allocator in it whose names are its own, as a server that is linked with its own jemalloc has, and uses it beside malloc.
#include <stdlib.h>

__attribute__((visibility("default"), noinline)) void *je_malloc(size_t bytes) {
    static char heap[1 << 16];
    return bytes <= sizeof heap ? heap : NULL;
}

int main(void) {
    char *volatile own = je_malloc(10);
    char *volatile block = malloc(10);
    own[0] = block[0] = 1;
    free(block);
    return 0;
}
