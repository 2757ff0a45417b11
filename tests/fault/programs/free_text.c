// Free of a function.
#include "fault.h"

void fault(void) {
    void *bad = align16((void *)(uintptr_t)fault);
    about(bad);
    free(opaque_pointer(bad));
}
