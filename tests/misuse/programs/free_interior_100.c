// Free of a pointer 100 bytes into a small block.
#include "misuse.h"

void mistake(void) {
    char *block = (char *)malloc(208);
    require(block != NULL);
    about_block(block + 100, block);
    free(opaque_pointer(block + 100));
}
