// Free of memory from sbrk.
#include "fault.h"

void fault(void) {
    void *bad = align16(sbrk(8192));
    about(bad);
    free(opaque_pointer(bad));
}
