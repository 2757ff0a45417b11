// free_sized of a large block with a small size.
#include "misuse.h"

extern void free_sized(void *block, size_t bytes) __attribute__((weak));

void mistake(void) {
    if (free_sized == NULL) {
        misuse_end(END_ABSENT, "free_sized");
    }
    void *block = malloc(200 * KIB);
    require(block != NULL);
    about_block(block, block);
    free_sized(block, 208);
}
