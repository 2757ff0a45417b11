// The first word of a freed block points to the block: a free list would hand it out for ever.
#include "misuse.h"

void mistake(void) {
    void **block = (void **)malloc(208);
    void *other = malloc(208);
    require(block != NULL && other != NULL);
    about_block(block, block);
    free(other);
    free(block);
    block[0] = block;
}
