// The same block freed twice: malloc(64 * MiB).
#include "misuse.h"

void mistake(void) {
    void *block = malloc(64 * MIB);
    require(block != NULL);
    about_block(block, block);
    free(block);
    free(opaque_pointer(block));
}
