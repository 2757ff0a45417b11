// Free of a pointer 16 bytes into a small block of a size used for a while.
#include "warm.h"

void mistake(void) {
    warm_up(208);
    char *block = (char *)malloc(208);
    require(block != NULL);
    about_block(block + 16, block);
    free(opaque_pointer(block + 16));
}
