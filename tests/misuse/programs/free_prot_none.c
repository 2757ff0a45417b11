// Free of an address nobody may read.
#include "misuse.h"

void mistake(void) {
    void *bad = mmap(NULL, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(bad != MAP_FAILED);
    about(bad);
    free(bad);
}
