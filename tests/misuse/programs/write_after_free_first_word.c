// The first word of a freed block overwritten: where a free list keeps its link.
#include "misuse.h"

void mistake(void) {
    void **block = (void **)malloc(208);
    void *keep = malloc(208);
    require(block != NULL && keep != NULL);
    about_block(block, block);
    free(block);
    block[0] = (void *)(uintptr_t)0x4141414141414141;
    free(keep);
}
