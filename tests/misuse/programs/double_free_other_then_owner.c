// Another thread frees a block, then its owner does.
#include "misuse.h"

void mistake(void) {
    void *block = malloc(208);
    require(block != NULL);
    about_block(block, block);
    on_other_thread(free_argument, block);
    free(opaque_pointer(block));
}
