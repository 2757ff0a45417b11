// The same block freed twice: malloc(208).
#include "misuse.h"

void mistake(void) {
    void *block = malloc(208);
    require(block != NULL);
    about_block(block, block);
    free(block);
    free(opaque_pointer(block));
}
