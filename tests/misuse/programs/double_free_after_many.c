// A block freed again after 2,000 other frees of its size, which emptied and refilled the cache.
#include "misuse.h"

void mistake(void) {
    enum { COUNT = 2000 };
    static void *others[COUNT];
    void *block = malloc(208);
    for (int i = 0; i < COUNT; i++) {
        others[i] = malloc(208);
        require(others[i] != NULL);
    }
    about_block(block, block);
    free(block);
    for (int i = 0; i < COUNT; i++) {
        free(others[i]);
    }
    free(opaque_pointer(block));
}
