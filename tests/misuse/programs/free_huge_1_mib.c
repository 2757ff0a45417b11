// Free of a pointer 1 MiB into a huge block.
#include "misuse.h"

void mistake(void) {
    char *block = (char *)malloc(64 * MIB);
    require(block != NULL);
    about_block(block + MIB, block);
    free(opaque_pointer(block + MIB));
}
