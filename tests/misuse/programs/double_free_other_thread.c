// A thread frees another thread's block twice.
#include "misuse.h"

static void *body(void *argument) {
    free(argument);
    free(argument);
    return NULL;
}

void mistake(void) {
    void *block = malloc(208);
    require(block != NULL);
    about_block(block, block);
    on_other_thread(body, block);
}
