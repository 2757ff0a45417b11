// aligned_alloc with alignments that are no powers of two: a usable block, or NULL and EINVAL.
#include "misuse.h"

void mistake(void) {
    static const size_t alignments[] = {0, 1, 2, 3, 4, 5, 24, 100, 4097};
    for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++) {
        errno = 0;
        void *block = aligned_alloc(opaque(alignments[i]), 200);
        contract(block != NULL ? malloc_usable_size(block) >= 200 : errno == EINVAL);
        if (block != NULL) {
            memset(block, 1, 200);
        }
        free(block);
    }
}
