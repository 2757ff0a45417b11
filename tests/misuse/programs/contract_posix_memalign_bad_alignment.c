// posix_memalign with alignments that it must refuse: EINVAL, pointer and errno untouched.
#include "misuse.h"

void mistake(void) {
    static const size_t alignments[] = {0, 1, 2, 3, 4, 5, 7, 9, 12, 24, 40, 4097, SIZE_MAX};
    for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++) {
        void *pointer = &pointer;
        errno = 77;
        contract(posix_memalign(&pointer, opaque(alignments[i]), 100) == EINVAL);
        contract(pointer == &pointer && errno == 77);
    }
}
