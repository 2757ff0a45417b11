// Usable size of memory nobody may read.
#include "misuse.h"

void mistake(void) {
    void *bad = mmap(NULL, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(bad != MAP_FAILED);
    about(bad);
    size_t usable = malloc_usable_size(opaque_pointer(bad));
    require(!ignored() || usable == 0);
}
