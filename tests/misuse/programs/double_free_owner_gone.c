// Two frees of a block whose thread has ended.
#include "misuse.h"

static void *take(void *argument) {
    void **block = (void **)argument;
    *block = malloc(208);
    require(*block != NULL);
    return NULL;
}

void mistake(void) {
    void *block = NULL;
    on_other_thread(take, &block);
    about_block(block, block);
    free(block);
    free(opaque_pointer(block));
}
