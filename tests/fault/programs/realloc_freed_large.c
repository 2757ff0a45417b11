// Realloc of a freed large block.
#include "fault.h"

void fault(void) {
    void *block = malloc(200 * KIB);
    require(block != NULL);
    about_block(block, block);
    free(block);
    void *result = realloc(opaque_pointer(block), 500);
    require(!ignored() || (result == NULL && errno == EINVAL));
}
