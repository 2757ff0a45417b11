// Realloc of a freed huge block.
#include "misuse.h"

void mistake(void) {
    void *block = malloc(64 * MIB);
    require(block != NULL);
    about_block(block, block);
    free(block);
    void *result = realloc(opaque_pointer(block), 500);
    require(!ignored() || (result == NULL && errno == EINVAL));
}
