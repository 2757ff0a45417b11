// Realloc of a freed block.
#include "misuse.h"

void mistake(void) {
    void *block = malloc(208);
    require(block != NULL);
    about_block(block, block);
    free(block);
    void *result = realloc(opaque_pointer(block), 500);
    require(!ignored() || (result == NULL && errno == EINVAL));
}
