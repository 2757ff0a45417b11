// Free of a pointer 1 bytes into a large block.
#include "misuse.h"

void mistake(void) {
    char *block = (char *)malloc(200 * KIB);
    require(block != NULL);
    about_block(block + 1, block);
    free(opaque_pointer(block + 1));
}
