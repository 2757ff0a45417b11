// free_aligned_sized with what aligned_alloc was told, of alignments that are no powers of two as well: no line.
#include "misuse.h"

extern void free_aligned_sized(void *block, size_t alignment, size_t bytes) __attribute__((weak));

void mistake(void) {
    if (free_aligned_sized == NULL) {
        misuse_end(END_ABSENT, "free_aligned_sized");
    }
    static const size_t alignments[] = {1, 3, 16, 24, 48, 100, 4096, 4097};
    for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++) {
        for (size_t bytes = 1; bytes < 5 * MIB; bytes = bytes * 3 / 2 + 1) {
            void *block = aligned_alloc(opaque(alignments[i]), bytes);
            require(block != NULL);
            free_aligned_sized(block, alignments[i], bytes);
        }
    }
}
