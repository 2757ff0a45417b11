// A large block freed by its owner and by another thread.
#include "fault.h"

static void *body(void *argument) {
    free(argument);
    return NULL;
}

void fault(void) {
    void *block = malloc(200 * KIB);
    require(block != NULL);
    about_block(block, block);
    free(block);
    on_other_thread(body, block);
}
