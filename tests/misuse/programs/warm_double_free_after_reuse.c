// Freed, given out again, and freed through both pointers, in a size used for a while.
#include "warm.h"

void mistake(void) {
    warm_up(208);
    void *block = malloc(208);
    require(block != NULL);
    about_block(block, block);
    free(block);
    void *again = malloc(208);
    require(again != NULL);
    free(opaque_pointer(block));
    free(again);
}
