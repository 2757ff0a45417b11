// Realloc of -1.
#include "misuse.h"

void mistake(void) {
    void *bad = (void *)(uintptr_t)-1;
    about(bad);
    void *result = realloc(opaque_pointer(bad), 500);
    require(!ignored() || (result == NULL && errno == EINVAL));
}
