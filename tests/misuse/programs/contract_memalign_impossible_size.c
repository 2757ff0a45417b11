// memalign of impossible sizes: NULL and ENOMEM.
#include "misuse.h"

#include "impossible.h"

void mistake(void) {
    for (size_t i = 0; i < IMPOSSIBLE_COUNT; i++) {
        for (size_t alignment = 8; alignment <= MIB; alignment *= 8) {
            errno = 0;
            contract(memalign(alignment, opaque(impossible[i])) == NULL && errno == ENOMEM);
        }
    }
}
