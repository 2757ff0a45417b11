// Realloc of a function.
#include "misuse.h"

void mistake(void) {
    void *bad = align16((void *)(uintptr_t)mistake);
    about(bad);
    void *result = realloc(opaque_pointer(bad), 500);
    require(!ignored() || (result == NULL && errno == EINVAL));
}
