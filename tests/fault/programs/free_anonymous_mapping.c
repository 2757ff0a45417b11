// Free of memory that the program mapped itself.
#include "fault.h"

void fault(void) {
    char *mapping = (char *)test_memory(MIB);
    void *bad = mapping + 4096;
    about(bad);
    free(bad);
}
