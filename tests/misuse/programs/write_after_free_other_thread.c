// A block freed by one thread and written by another.
#include "misuse.h"

static void *body(void *argument) {
    memset(argument, 0x41, 16);
    return NULL;
}

void mistake(void) {
    void *block = malloc(208);
    void *keep = malloc(208);  // keeps the slab where it is
    require(block != NULL && keep != NULL);
    about_block(block, block);
    free(block);
    on_other_thread(body, block);
    free(keep);
}
