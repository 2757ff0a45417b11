// Usable size of a pointer into a huge block.
#include "misuse.h"

void mistake(void) {
    char *block = (char *)malloc(64 * MIB);
    require(block != NULL);
    about_block(block + MIB, block);
    size_t usable = malloc_usable_size(opaque_pointer(block + MIB));
    require(!ignored() || usable == 0);
}
