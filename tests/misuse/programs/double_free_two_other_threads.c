// Two other threads, one after the other, free the same block.
#include "misuse.h"

static void *body(void *argument) {
    free(argument);
    return NULL;
}

void mistake(void) {
    void *block = malloc(208);
    require(block != NULL);
    about_block(block, block);
    on_other_thread(body, block);
    on_other_thread(body, block);
}
