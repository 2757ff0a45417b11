// Realloc of an address on the stack.
#include "misuse.h"

void mistake(void) {
    char here[256] = {1};
    void *bad = align16(here + 64);
    about(bad);
    void *result = realloc(opaque_pointer(bad), 500);
    require(!ignored() || (result == NULL && errno == EINVAL));
}
