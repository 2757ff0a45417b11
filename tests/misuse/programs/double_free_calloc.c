// The same block freed twice: calloc(13, 16).
#include "misuse.h"

void mistake(void) {
    void *block = calloc(13, 16);
    require(block != NULL);
    about_block(block, block);
    free(block);
    free(opaque_pointer(block));
}
