// A block freed again after frees of many other sizes.
#include "misuse.h"

void mistake(void) {
    static void *others[200];
    void *block = malloc(208);
    for (size_t i = 0; i < 200; i++) {
        others[i] = malloc(300 + 200 * i);
        require(others[i] != NULL);
    }
    about_block(block, block);
    free(block);
    for (size_t i = 0; i < 200; i++) {
        free(others[i]);
    }
    free(opaque_pointer(block));
}
