// Free of an address in the first page.
#include "misuse.h"

void mistake(void) {
    void *bad = opaque_pointer((void *)(uintptr_t)4080);
    about(bad);
    free(bad);
}
