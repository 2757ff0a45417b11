// Free of the rest of a slab, where no block fits, in a size used for a while.
#include "warm.h"

void mistake(void) {
    warm_up(640);
    char *block = (char *)malloc(640);
    require(block != NULL);
    char *bad = (char *)((uintptr_t)block & ~(uintptr_t)65535) + 65536 - 16;
    about(bad);
    free(opaque_pointer(bad));
}
