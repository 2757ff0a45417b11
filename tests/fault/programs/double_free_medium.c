// The same block freed twice: malloc(8192).
#include "fault.h"

void fault(void) {
    void *block = malloc(8192);
    require(block != NULL);
    about_block(block, block);
    free(block);
    free(opaque_pointer(block));
}
