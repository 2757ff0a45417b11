// valloc of impossible sizes: NULL and ENOMEM.
#include "misuse.h"

#include "impossible.h"

void mistake(void) {
    for (size_t i = 0; i < IMPOSSIBLE_COUNT; i++) {
        errno = 0;
        contract(valloc(opaque(impossible[i])) == NULL && errno == ENOMEM);
    }
}
