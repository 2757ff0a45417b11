// Free of an address no processor accepts.
#include "misuse.h"

void mistake(void) {
    void *bad = opaque_pointer((void *)(uintptr_t)0x8000000000000000);
    about(bad);
    free(bad);
}
