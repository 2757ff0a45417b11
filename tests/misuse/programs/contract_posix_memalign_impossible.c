// posix_memalign of what cannot be: ENOMEM, pointer untouched.
#include "misuse.h"

#include "impossible.h"

void mistake(void) {
    for (size_t i = 0; i < IMPOSSIBLE_COUNT; i++) {
        void *pointer = &pointer;
        contract(posix_memalign(&pointer, 64, opaque(impossible[i])) == ENOMEM);
        contract(pointer == &pointer);
    }
    void *pointer = &pointer;
    contract(posix_memalign(&pointer, opaque(SIZE_MAX / 4 + 1), 100) == ENOMEM);
    contract(pointer == &pointer);
}
