// A block freed by one thread and written by another.
#include "misuse.h"

static void *body(void *argument) {
    memset(argument, 0x41, 16);
    return NULL;
}

void mistake(void) {
    void *block = malloc(208);
    require(block != NULL);
    about_block(block, block);
    free(block);
    on_other_thread(body, block);
}
