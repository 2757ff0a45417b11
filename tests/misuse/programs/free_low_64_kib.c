// Free of an address that the kernel never maps.
#include "misuse.h"

void mistake(void) {
    void *bad = opaque_pointer((void *)(uintptr_t)0x10000);
    about(bad);
    free(bad);
}
