// The same block freed twice: malloc(1).
#include "fault.h"

void fault(void) {
    void *block = malloc(1);
    require(block != NULL);
    about_block(block, block);
    free(block);
    free(opaque_pointer(block));
}
