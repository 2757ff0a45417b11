// Free of a pointer into an aligned block.
#include "misuse.h"

void mistake(void) {
    char *block = (char *)memalign(256, 2000);
    require(block != NULL);
    about_block(block + 256, block);
    free(opaque_pointer(block + 256));
}
