// Realloc of a pointer into a large block.
#include "misuse.h"

void mistake(void) {
    char *block = (char *)malloc(200 * KIB);
    require(block != NULL);
    about_block(block + 4096, block);
    void *result = realloc(opaque_pointer(block + 4096), 500);
    require(!ignored() || (result == NULL && errno == EINVAL));
}
