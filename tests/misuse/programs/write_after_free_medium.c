// The first words of a freed block overwritten: malloc(8192).
#include "misuse.h"

void mistake(void) {
    char *block = (char *)malloc(8192);
    void *keep = malloc(8192);  // keeps the slab where it is
    require(block != NULL && keep != NULL);
    memset(block, 0x55, 4096);
    about_block(block, block);
    free(block);
    memset(opaque_pointer(block), 0x41, 16);
    free(keep);
}
