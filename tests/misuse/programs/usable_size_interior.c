// Usable size of a pointer into a small block.
#include "misuse.h"

void mistake(void) {
    char *block = (char *)malloc(208);
    require(block != NULL);
    about_block(block + 8, block);
    size_t usable = malloc_usable_size(opaque_pointer(block + 8));
    require(!ignored() || usable == 0);
}
