// The same block freed twice: malloc(208).
#include "fault.h"

void fault(void) {
    void *block = malloc(208);
    require(block != NULL);
    about_block(block, block);
    free(block);
    free(opaque_pointer(block));
}
