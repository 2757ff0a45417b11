// Another thread frees a block twice, in a size that both have used for a while.
#include "warm.h"

static void *body(void *argument) {
    warm_up(208);
    free(argument);
    free(argument);
    return NULL;
}

void mistake(void) {
    warm_up(208);
    void *block = malloc(208);
    require(block != NULL);
    about_block(block, block);
    on_other_thread(body, block);
}
