// Usable size of a function.
#include "misuse.h"

void mistake(void) {
    void *bad = align16((void *)(uintptr_t)mistake);
    about(bad);
    size_t usable = malloc_usable_size(opaque_pointer(bad));
    require(!ignored() || usable == 0);
}
