// Usable size of an address where a mapping was.
#include "misuse.h"

void mistake(void) {
    void *bad = test_memory(64 * MIB);
    require(munmap(bad, 64 * MIB) == 0);
    about(bad);
    size_t usable = malloc_usable_size(opaque_pointer(bad));
    require(!ignored() || usable == 0);
}
