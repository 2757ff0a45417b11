// Free of an address that the kernel never maps.
#include "fault.h"

void fault(void) {
    void *bad = opaque_pointer((void *)(uintptr_t)0x10000);
    about(bad);
    free(bad);
}
