// The second word of a freed block overwritten: where a double list or a key would be.
#include "misuse.h"

void mistake(void) {
    void **block = (void **)malloc(208);
    void *keep = malloc(208);  // keeps the slab where it is
    require(block != NULL && keep != NULL);
    about_block(block + 1, block);
    free(block);
    block[1] = (void *)(uintptr_t)0x4141414141414141;
    free(keep);
}
