// Realloc of the rest of a slab, where no block fits.
#include "misuse.h"

void mistake(void) {
    char *block = (char *)malloc(640);
    require(block != NULL);
    char *bad = (char *)((uintptr_t)block & ~(uintptr_t)65535) + 65536 - 16;
    about(bad);
    void *result = realloc(opaque_pointer(bad), 500);
    require(!ignored() || (result == NULL && errno == EINVAL));
}
