// The same block freed twice: malloc(200 * KiB).
#include "fault.h"

void fault(void) {
    void *block = malloc(200 * KIB);
    require(block != NULL);
    about_block(block, block);
    free(block);
    free(opaque_pointer(block));
}
