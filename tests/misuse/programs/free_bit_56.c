// Free of an address above 56 bits.
#include "misuse.h"

void mistake(void) {
    void *bad = opaque_pointer((void *)(uintptr_t)0x0100000000000000);
    about(bad);
    free(bad);
}
