// Usable size of a freed large block.
#include "misuse.h"

void mistake(void) {
    void *block = malloc(200 * KIB);
    require(block != NULL);
    about_block(block, block);
    free(block);
    size_t usable = malloc_usable_size(opaque_pointer(block));
    require(!ignored() || usable == 0);
}
