// Free of a pointer into the middle of a block of 8 KiB.
#include "misuse.h"

void mistake(void) {
    char *block = (char *)malloc(8192);
    require(block != NULL);
    about_block(block + 4096, block);
    free(opaque_pointer(block + 4096));
}
