// Realloc of a pointer into a small block.
#include "misuse.h"

void mistake(void) {
    char *block = (char *)malloc(208);
    require(block != NULL);
    about_block(block + 16, block);
    void *result = realloc(opaque_pointer(block + 16), 500);
    require(!ignored() || (result == NULL && errno == EINVAL));
}
