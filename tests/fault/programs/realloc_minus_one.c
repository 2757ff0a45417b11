// Realloc of -1.
#include "fault.h"

void fault(void) {
    void *bad = (void *)(uintptr_t)-1;
    about(bad);
    void *result = realloc(opaque_pointer(bad), 500);
    require(!ignored() || (result == NULL && errno == EINVAL));
}
