// The same block freed twice: memalign(1024, 2000).
#include "misuse.h"

void mistake(void) {
    void *block = memalign(1024, 2000);
    require(block != NULL);
    about_block(block, block);
    free(block);
    free(opaque_pointer(block));
}
