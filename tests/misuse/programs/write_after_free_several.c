// The first words of several freed blocks overwritten.
#include "misuse.h"

void mistake(void) {
    void **blocks[40];
    for (int i = 0; i < 40; i++) {
        blocks[i] = (void **)malloc(208);
        require(blocks[i] != NULL);
    }
    for (int i = 0; i < 40; i++) {
        free(blocks[i]);
    }
    for (int i = 0; i < 40; i++) {
        memset(opaque_pointer(blocks[i]), 0x41, 16);
    }
}
