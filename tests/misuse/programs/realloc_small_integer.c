// Realloc of a small integer.
#include "misuse.h"

void mistake(void) {
    void *bad = (void *)(uintptr_t)48;
    about(bad);
    void *result = realloc(opaque_pointer(bad), 500);
    require(!ignored() || (result == NULL && errno == EINVAL));
}
