// Realloc of memory that the program mapped itself.
#include "misuse.h"

void mistake(void) {
    void *bad = test_memory(MIB);
    about(bad);
    void *result = realloc(opaque_pointer(bad), 500);
    require(!ignored() || (result == NULL && errno == EINVAL));
}
