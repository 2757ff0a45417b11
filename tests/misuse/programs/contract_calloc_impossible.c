// calloc of impossible sizes: NULL and ENOMEM.
#include "misuse.h"

#include "impossible.h"

void mistake(void) {
    for (size_t i = 0; i < IMPOSSIBLE_COUNT; i++) {
        errno = 0;
        contract(calloc(1, opaque(impossible[i])) == NULL && errno == ENOMEM);
        errno = 0;
        contract(calloc(opaque(impossible[i]), 1) == NULL && errno == ENOMEM);
    }
}
