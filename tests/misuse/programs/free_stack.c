// Free of an address on the stack.
#include "misuse.h"

void mistake(void) {
    char here[256] = {1};
    void *bad = align16(here + 64);
    about(bad);
    free(opaque_pointer(bad));
}
