// Free of a constant.
#include "misuse.h"

static const char constant[8192] = {1};

void mistake(void) {
    void *bad = align16((void *)(uintptr_t)(constant + 64));
    about(bad);
    free(opaque_pointer(bad));
}
