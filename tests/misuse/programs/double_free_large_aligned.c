// The same block freed twice: memalign(128 * KiB, 200 * KiB).
#include "misuse.h"

void mistake(void) {
    void *block = memalign(128 * KIB, 200 * KIB);
    if (block == NULL) {
        misuse_end(END_ABSENT, "no such alignment");
    }
    about_block(block, block);
    free(block);
    free(opaque_pointer(block));
}
