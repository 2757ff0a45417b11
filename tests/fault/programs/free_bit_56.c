// Free of an address above 56 bits.
#include "fault.h"

void fault(void) {
    void *bad = opaque_pointer((void *)(uintptr_t)0x0100000000000000);
    about(bad);
    free(bad);
}
