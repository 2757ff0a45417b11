// Free of an address no processor accepts.
#include "fault.h"

void fault(void) {
    void *bad = opaque_pointer((void *)(uintptr_t)0x8000000000000000);
    about(bad);
    free(bad);
}
