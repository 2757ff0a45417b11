// Free of the old place of a block that realloc moved.
#include "misuse.h"

void mistake(void) {
    void *block = malloc(208);
    require(block != NULL);
    about_block(block, block);
    void *moved = realloc(block, 5000);
    require(moved != NULL);
    if (moved == block) {
        misuse_end(END_ABSENT, "realloc did not move the block");
    }
    free(opaque_pointer(block));
    free(moved);
}
