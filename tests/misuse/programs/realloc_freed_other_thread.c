// Realloc of a block that another thread freed.
#include "misuse.h"

void mistake(void) {
    void *block = malloc(208);
    require(block != NULL);
    about_block(block, block);
    on_other_thread(free_argument, block);
    void *result = realloc(opaque_pointer(block), 500);
    require(!ignored() || (result == NULL && errno == EINVAL));
}
