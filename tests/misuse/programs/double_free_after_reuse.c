// A block freed, its place given out again, then freed through both pointers.
#include "misuse.h"

void mistake(void) {
    void *block = malloc(208);
    require(block != NULL);
    about_block(block, block);
    free(block);
    void *again = malloc(208);
    require(again != NULL);
    free(opaque_pointer(block));
    free(again);
}
