// Free of a pointer 65536 bytes into a large block.
#include "misuse.h"

void mistake(void) {
    char *block = (char *)malloc(200 * KIB);
    require(block != NULL);
    about_block(block + 65536, block);
    free(opaque_pointer(block + 65536));
}
