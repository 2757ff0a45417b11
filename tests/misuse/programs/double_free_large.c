// The same block freed twice: malloc(200 * KiB).
#include "misuse.h"

void mistake(void) {
    void *block = malloc(200 * KIB);
    require(block != NULL);
    about_block(block, block);
    free(block);
    free(opaque_pointer(block));
}
