// Free of an address in a mapping that holds no block: the allocator's own books.
#include "misuse.h"

#include "metadata.h"

void mistake(void) {
    void *bad = metadata_address();
    about(bad);
    free(opaque_pointer(bad));
}
