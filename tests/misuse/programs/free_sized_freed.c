// free_sized of a freed block.
#include "misuse.h"

extern void free_sized(void *block, size_t bytes) __attribute__((weak));

void mistake(void) {
    if (free_sized == NULL) {
        misuse_end(END_ABSENT, "free_sized");
    }
    void *block = malloc(208);
    require(block != NULL);
    about_block(block, block);
    free_sized(block, 208);
    free_sized(opaque_pointer(block), 208);
}
