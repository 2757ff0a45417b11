// Realloc of an address no processor accepts.
#include "misuse.h"

void mistake(void) {
    void *bad = (void *)(uintptr_t)0x8000000000000000;
    about(bad);
    void *result = realloc(opaque_pointer(bad), 500);
    require(!ignored() || (result == NULL && errno == EINVAL));
}
