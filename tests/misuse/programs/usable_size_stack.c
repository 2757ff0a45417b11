// Usable size of an address on the stack.
#include "misuse.h"

void mistake(void) {
    char here[256] = {1};
    void *bad = align16(here + 64);
    about(bad);
    size_t usable = malloc_usable_size(opaque_pointer(bad));
    require(!ignored() || usable == 0);
}
