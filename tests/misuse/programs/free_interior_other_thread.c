// Free of a pointer into a block that another thread owns.
#include "misuse.h"

void mistake(void) {
    char *block = (char *)malloc(208);
    require(block != NULL);
    about_block(block + 16, block);
    on_other_thread(free_argument, block + 16);
    free(block);
}
