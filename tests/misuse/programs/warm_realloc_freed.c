// Realloc of a freed block of a size used for a while.
#include "warm.h"

void mistake(void) {
    warm_up(208);
    void *block = malloc(208);
    require(block != NULL);
    about_block(block, block);
    free(block);
    void *result = realloc(opaque_pointer(block), 500);
    require(!ignored() || (result == NULL && errno == EINVAL));
}
