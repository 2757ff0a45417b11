// Free of the number 1.
#include "misuse.h"

void mistake(void) {
    void *bad = opaque_pointer((void *)(uintptr_t)1);
    about(bad);
    free(bad);
}
