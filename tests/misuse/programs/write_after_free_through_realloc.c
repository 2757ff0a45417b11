// The old place of a block that realloc moved, overwritten.
#include "misuse.h"

void mistake(void) {
    char *block = (char *)malloc(208);
    void *wall = malloc(208);
    require(block != NULL && wall != NULL);
    about_block(block, block);
    char *moved = (char *)realloc(block, 50000);
    require(moved != NULL);
    if (moved == block) {
        misuse_end(END_ABSENT, "realloc did not move the block");
    }
    memset(opaque_pointer(block), 0x41, 16);
    free(moved);
    free(wall);
}
