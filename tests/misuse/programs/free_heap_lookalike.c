// Free of an aligned mapping filled with what looks like blocks and pointers to them.
#include "misuse.h"

void mistake(void) {
    char *mapping = (char *)test_memory(12 * MIB);
    char *superslab = (char *)(((uintptr_t)mapping + 4 * MIB - 1) & ~(uintptr_t)(4 * MIB - 1));
    void **words = (void **)(void *)superslab;
    for (size_t i = 0; i < 4 * MIB / sizeof(void *); i++) {
        words[i] = superslab + i % 65536 * 16;
    }
    void *bad = superslab + 65536;
    about(bad);
    free(bad);
}
