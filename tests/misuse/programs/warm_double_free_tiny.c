// The same block freed twice by a thread that has used its size for a while: malloc(16).
#include "warm.h"

void mistake(void) {
    warm_up(16);
    void *block = malloc(16);
    require(block != NULL);
    about_block(block, block);
    free(block);
    free(opaque_pointer(block));
}
