// The last word of a freed block overwritten.
#include "misuse.h"

void mistake(void) {
    char *block = (char *)malloc(208);
    void *keep = malloc(208);  // keeps the slab where it is
    require(block != NULL && keep != NULL);
    const size_t usable = malloc_usable_size(block);
    about_block(block + usable - 8, block);
    free(block);
    memset((char *)opaque_pointer(block) + usable - 8, 0x41, 8);
    free(keep);
}
