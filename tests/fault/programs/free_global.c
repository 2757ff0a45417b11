// Free of a global variable.
#include "fault.h"

static char global[8192] = {1};

void fault(void) {
    void *bad = align16(global + 64);
    about(bad);
    free(opaque_pointer(bad));
}
