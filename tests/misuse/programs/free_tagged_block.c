// Free of a good block with a tag in the pointer's top byte.
#include "misuse.h"

void mistake(void) {
    void *block = malloc(208);
    void *bad = opaque_pointer((void *)((uintptr_t)block | (uintptr_t)0x5a << 56));
    about(bad);
    free(bad);
    free(block);
}
