// Free of an address of the kernel.
#include "misuse.h"

void mistake(void) {
    void *bad = opaque_pointer((void *)(uintptr_t)0xffff888000000000);
    about(bad);
    free(bad);
}
