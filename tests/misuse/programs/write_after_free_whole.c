// All of a freed block overwritten.
#include "misuse.h"

void mistake(void) {
    char *block = (char *)malloc(208);
    require(block != NULL);
    about_block(block, block);
    const size_t usable = malloc_usable_size(block);
    free(block);
    memset(opaque_pointer(block), 0x41, usable);
}
