// Free of a global variable.
#include "misuse.h"

static char global[8192] = {1};

void mistake(void) {
    void *bad = align16(global + 64);
    about(bad);
    free(opaque_pointer(bad));
}
