// All of a freed block overwritten.
#include "misuse.h"

void mistake(void) {
    char *block = (char *)malloc(208);
    void *keep = malloc(208);  // keeps the slab where it is
    require(block != NULL && keep != NULL);
    about_block(block, block);
    const size_t usable = malloc_usable_size(block);
    free(block);
    memset(opaque_pointer(block), 0x41, usable);
    free(keep);
}
