// free_aligned_sized with an alignment that the block was not asked for.
#include "misuse.h"

extern void free_aligned_sized(void *block, size_t alignment, size_t bytes) __attribute__((weak));

void mistake(void) {
    if (free_aligned_sized == NULL) {
        misuse_end(END_ABSENT, "free_aligned_sized");
    }
    void *block = malloc(208);
    require(block != NULL);
    about_block(block, block);
    free_aligned_sized(block, 4096, 208);
}
