// Realloc of a freed block to zero bytes, which is a free.
#include "misuse.h"

void mistake(void) {
    void *block = malloc(208);
    require(block != NULL);
    about_block(block, block);
    free(block);
    void *result = realloc(opaque_pointer(block), opaque(0));
    require(result == NULL || !behaviour_on_hakmem());
}
