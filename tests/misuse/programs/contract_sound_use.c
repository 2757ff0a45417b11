// No mistake at all: what the board calls sound on every allocator.
#include "misuse.h"

void mistake(void) {
    void *block = malloc(208);
    require(block != NULL);
    about_block(block, block);
    free(block);
}
