// Realloc of memory nobody may read.
#include "misuse.h"

void mistake(void) {
    void *bad = mmap(NULL, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(bad != MAP_FAILED);
    about(bad);
    void *result = realloc(opaque_pointer(bad), 500);
    require(!ignored() || (result == NULL && errno == EINVAL));
}
