// free_aligned_sized with a size that is not the block's.
#include "misuse.h"

extern void free_aligned_sized(void *block, size_t alignment, size_t bytes) __attribute__((weak));

void mistake(void) {
    if (free_aligned_sized == NULL) {
        misuse_end(END_ABSENT, "free_aligned_sized");
    }
    void *block = aligned_alloc(256, 1024);
    require(block != NULL);
    about_block(block, block);
    free_aligned_sized(block, 256, 64);
}
