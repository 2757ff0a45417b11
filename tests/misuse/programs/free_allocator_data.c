// Free of an address in the data of the library that serves malloc.
#include "misuse.h"

#include "metadata.h"

void mistake(void) {
    void *bad = library_data_address();
    about(bad);
    free(opaque_pointer(bad));
}
