// Free of an address in the first page.
#include "fault.h"

void fault(void) {
    void *bad = opaque_pointer((void *)(uintptr_t)4080);
    about(bad);
    free(bad);
}
