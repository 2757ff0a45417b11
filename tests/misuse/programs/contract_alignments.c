// Every alignment from 8 bytes to 1 GiB, also larger than the size, is honoured.
#include "misuse.h"

void mistake(void) {
    for (size_t alignment = 8; alignment <= GIB; alignment *= 2) {
        static const size_t sizes[] = {1, 100, 5000, 70000};
        for (size_t i = 0; i < 4; i++) {
            void *pointer = NULL;
            contract(posix_memalign(&pointer, alignment, sizes[i]) == 0 &&
                     aligned_to(pointer, alignment) && malloc_usable_size(pointer) >= sizes[i]);
            memset(pointer, 1, sizes[i]);
            void *other = memalign(alignment, sizes[i]);
            contract(other != NULL && aligned_to(other, alignment) && other != pointer);
            memset(other, 2, sizes[i]);
            free(pointer);
            free(other);
        }
    }
}
