// Free of the old place of a block that realloc moved.
#include "fault.h"

void fault(void) {
    void *block = malloc(208);
    require(block != NULL);
    about_block(block, block);
    void *moved = realloc(block, 5000);
    require(moved != NULL && moved != block);
    free(opaque_pointer(block));
    free(moved);
}
