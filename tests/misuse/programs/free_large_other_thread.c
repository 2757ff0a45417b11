// Free of a pointer into a large block by a thread that does not own it.
#include "misuse.h"

void mistake(void) {
    char *block = (char *)malloc(200 * KIB);
    require(block != NULL);
    about_block(block + 4096, block);
    on_other_thread(free_argument, block + 4096);
    free(block);
}
