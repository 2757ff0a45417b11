// Free of the number 1.
#include "fault.h"

void fault(void) {
    void *bad = opaque_pointer((void *)(uintptr_t)1);
    about(bad);
    free(bad);
}
