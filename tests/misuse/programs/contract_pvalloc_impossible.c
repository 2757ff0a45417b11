// pvalloc of impossible sizes, also those that round up to zero: NULL and ENOMEM.
#include "misuse.h"

#include "impossible.h"

void mistake(void) {
    for (size_t i = 0; i < IMPOSSIBLE_COUNT; i++) {
        errno = 0;
        contract(pvalloc(opaque(impossible[i])) == NULL && errno == ENOMEM);
    }
}
