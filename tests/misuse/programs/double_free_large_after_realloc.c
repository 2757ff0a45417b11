// Free of the old place of a large block that realloc moved to a huge one.
#include "misuse.h"

void mistake(void) {
    void *block = malloc(200 * KIB);
    require(block != NULL);
    about_block(block, block);
    void *moved = realloc(block, 64 * MIB);
    require(moved != NULL);
    if (moved == block) {
        misuse_end(END_ABSENT, "realloc did not move the block");
    }
    free(opaque_pointer(block));
    free(moved);
}
