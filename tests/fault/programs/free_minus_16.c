// Free of -16.
#include "fault.h"

void fault(void) {
    void *bad = opaque_pointer((void *)(uintptr_t)-16);
    about(bad);
    free(bad);
}
