// free_sized with a size that is not the block's.
#include "fault.h"

extern void free_sized(void *block, size_t bytes) __attribute__((weak));

void fault(void) {
    void *block = malloc(208);
    require(block != NULL && free_sized != NULL);
    about_block(block, block);
    free_sized(block, 5000);
}
