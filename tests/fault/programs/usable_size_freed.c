// Usable size of a freed block.
#include "fault.h"

void fault(void) {
    void *block = malloc(208);
    require(block != NULL);
    about_block(block, block);
    free(block);
    size_t usable = malloc_usable_size(opaque_pointer(block));
    require(!ignored() || usable == 0);
}
