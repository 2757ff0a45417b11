// free_sized of a large block with a small size.
#include "fault.h"

extern void free_sized(void *block, size_t bytes) __attribute__((weak));

void fault(void) {
    void *block = malloc(200 * KIB);
    require(block != NULL && free_sized != NULL);
    about_block(block, block);
    free_sized(block, 208);
}
