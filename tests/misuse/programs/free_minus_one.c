// Free of -1, the error value of many calls.
#include "misuse.h"

void mistake(void) {
    void *bad = opaque_pointer((void *)(uintptr_t)-1);
    about(bad);
    free(bad);
}
