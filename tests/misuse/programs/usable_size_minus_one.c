// Usable size of -1.
#include "misuse.h"

void mistake(void) {
    void *bad = (void *)(uintptr_t)-1;
    about(bad);
    size_t usable = malloc_usable_size(opaque_pointer(bad));
    require(!ignored() || usable == 0);
}
