// A block freed again after one other free.
#include "misuse.h"

void mistake(void) {
    void *block = malloc(208);
    void *other = malloc(208);
    require(block != NULL && other != NULL);
    about_block(block, block);
    free(block);
    free(other);
    free(opaque_pointer(block));
}
