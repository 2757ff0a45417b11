// Free of a function.
#include "misuse.h"

void mistake(void) {
    void *bad = align16((void *)(uintptr_t)mistake);
    about(bad);
    free(opaque_pointer(bad));
}
