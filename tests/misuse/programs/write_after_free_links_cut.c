// The first words of several freed blocks set to NULL: a free list would end early.
#include "misuse.h"

void mistake(void) {
    void **blocks[40];
    for (int i = 0; i < 40; i++) {
        blocks[i] = (void **)malloc(208);
        require(blocks[i] != NULL);
        memset(blocks[i], 0x55, 208);
    }
    for (int i = 0; i < 40; i++) {
        free(blocks[i]);
    }
    for (int i = 0; i < 40; i++) {
        memset(opaque_pointer(blocks[i]), 0, 16);
    }
}
