// Realloc of an address where a mapping was.
#include "misuse.h"

void mistake(void) {
    void *bad = test_memory(64 * MIB);
    require(munmap(bad, 64 * MIB) == 0);
    about(bad);
    void *result = realloc(opaque_pointer(bad), 500);
    require(!ignored() || (result == NULL && errno == EINVAL));
}
