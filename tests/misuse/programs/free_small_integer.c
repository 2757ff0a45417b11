// Free of a small integer.
#include "misuse.h"

void mistake(void) {
    void *bad = opaque_pointer((void *)(uintptr_t)16);
    about(bad);
    free(bad);
}
