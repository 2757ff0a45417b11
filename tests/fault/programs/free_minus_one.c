// Free of -1, the error value of many calls.
#include "fault.h"

void fault(void) {
    void *bad = opaque_pointer((void *)(uintptr_t)-1);
    about(bad);
    free(bad);
}
