// Free of memory that the program mapped itself.
#include "misuse.h"

void mistake(void) {
    char *mapping = (char *)test_memory(MIB);
    void *bad = mapping + 4096;
    about(bad);
    free(bad);
}
