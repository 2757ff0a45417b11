// Free of the old place of a large block that realloc moved to a huge one.
#include "fault.h"

void fault(void) {
    void *block = malloc(200 * KIB);
    require(block != NULL);
    about_block(block, block);
    void *moved = realloc(block, 64 * MIB);
    require(moved != NULL && moved != block);
    free(opaque_pointer(block));
    free(moved);
}
