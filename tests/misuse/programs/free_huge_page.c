// Free of a pointer 4096 bytes into a huge block.
#include "misuse.h"

void mistake(void) {
    char *block = (char *)malloc(64 * MIB);
    require(block != NULL);
    about_block(block + 4096, block);
    free(opaque_pointer(block + 4096));
}
