// The same block freed twice by a thread that has used its size for a while: malloc(8192).
#include "warm.h"

void mistake(void) {
    warm_up(8192);
    void *block = malloc(8192);
    require(block != NULL);
    about_block(block, block);
    free(block);
    free(opaque_pointer(block));
}
