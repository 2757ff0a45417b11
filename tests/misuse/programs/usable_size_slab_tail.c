// Usable size of the rest of a slab, where no block fits.
#include "misuse.h"

void mistake(void) {
    char *block = (char *)malloc(640);
    require(block != NULL);
    char *bad = (char *)((uintptr_t)block & ~(uintptr_t)65535) + 65536 - 16;
    about(bad);
    size_t usable = malloc_usable_size(opaque_pointer(bad));
    require(!ignored() || usable == 0);
}
