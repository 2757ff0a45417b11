// free_sized with the size that was asked for: no mistake, and no line.
#include "misuse.h"

extern void free_sized(void *block, size_t bytes) __attribute__((weak));

void mistake(void) {
    if (free_sized == NULL) {
        misuse_end(END_ABSENT, "free_sized");
    }
    for (size_t bytes = 1; bytes < 5 * MIB; bytes = bytes * 3 / 2 + 1) {
        void *block = malloc(bytes);
        require(block != NULL);
        free_sized(block, bytes);
    }
}
