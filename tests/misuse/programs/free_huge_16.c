// Free of a pointer 16 bytes into a huge block.
#include "misuse.h"

void mistake(void) {
    char *block = (char *)malloc(64 * MIB);
    require(block != NULL);
    about_block(block + 16, block);
    free(opaque_pointer(block + 16));
}
