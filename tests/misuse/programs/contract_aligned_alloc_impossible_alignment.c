// aligned_alloc with alignments that no address has: NULL, and EINVAL or ENOMEM.
#include "misuse.h"

void mistake(void) {
    static const size_t alignments[] = {SIZE_MAX, SIZE_MAX / 2 + 1, SIZE_MAX / 4 + 1,
                                        (size_t)1 << 48, SIZE_MAX - 4095};
    for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++) {
        errno = 0;
        contract(aligned_alloc(opaque(alignments[i]), 100) == NULL &&
                 (errno == EINVAL || errno == ENOMEM));
    }
}
