// The owner frees a block, then another thread frees it.
#include "fault.h"

static void *body(void *argument) {
    free(argument);
    return NULL;
}

void fault(void) {
    void *block = malloc(208);
    require(block != NULL);
    about_block(block, block);
    free(block);
    on_other_thread(body, block);
}
