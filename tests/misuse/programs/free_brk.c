// Free of memory from sbrk.
#include "misuse.h"

void mistake(void) {
    void *bad = align16(sbrk(8192));
    about(bad);
    free(opaque_pointer(bad));
}
