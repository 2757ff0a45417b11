// The same block freed twice by a thread that has used its size for a while: malloc(208).
#include "warm.h"

void mistake(void) {
    warm_up(208);
    void *block = malloc(208);
    require(block != NULL);
    about_block(block, block);
    free(block);
    free(opaque_pointer(block));
}
