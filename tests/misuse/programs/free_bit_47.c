// Free of the first address above 47 bits.
#include "misuse.h"

void mistake(void) {
    void *bad = opaque_pointer((void *)(uintptr_t)0x0000800000000000);
    about(bad);
    free(bad);
}
