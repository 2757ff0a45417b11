// Usable size of an address no processor accepts.
#include "misuse.h"

void mistake(void) {
    void *bad = (void *)(uintptr_t)0x8000000000000000;
    about(bad);
    size_t usable = malloc_usable_size(opaque_pointer(bad));
    require(!ignored() || usable == 0);
}
