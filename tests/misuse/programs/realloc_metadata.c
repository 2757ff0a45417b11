// Realloc of an address in a mapping that holds no block: the allocator's own books.
#include "misuse.h"

#include "metadata.h"

void mistake(void) {
    void *bad = metadata_address();
    about(bad);
    void *result = realloc(opaque_pointer(bad), 500);
    require(!ignored() || (result == NULL && errno == EINVAL));
}
