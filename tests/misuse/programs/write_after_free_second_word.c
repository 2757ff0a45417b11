// The second word of a freed block overwritten: where a double list or a key would be.
#include "misuse.h"

void mistake(void) {
    void **block = (void **)malloc(208);
    require(block != NULL);
    about_block(block, block);
    free(block);
    block[1] = (void *)(uintptr_t)0x4141414141414141;
}
