// Two other threads, one after the other, free the same block.
#include "misuse.h"

void mistake(void) {
    void *block = malloc(208);
    require(block != NULL);
    about_block(block, block);
    on_other_thread(free_argument, block);
    on_other_thread(free_argument, block);
}
