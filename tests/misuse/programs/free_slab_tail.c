// Free of the rest of a slab, where no block fits.
#include "misuse.h"

void mistake(void) {
    char *block = (char *)malloc(640);
    require(block != NULL);
    require_that(65536 % malloc_usable_size(block) >= 32, "blocks of 640 bytes leave no rest");
    char *bad = (char *)((uintptr_t)block & ~(uintptr_t)65535) + 65536 - 16;
    about(bad);
    free(opaque_pointer(bad));
}
