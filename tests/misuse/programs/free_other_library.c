// Free of a block from another library's own allocator.
#include "misuse.h"

void *foreign_take(size_t bytes);

void mistake(void) {
    void *bad = foreign_take(100);
    about(bad);
    free(bad);
}
