// Free of a pointer into a large block by a thread that does not own it.
#include "misuse.h"

static void *body(void *argument) {
    free(argument);
    return NULL;
}

void mistake(void) {
    char *block = (char *)malloc(200 * KIB);
    require(block != NULL);
    about_block(block + 4096, block);
    on_other_thread(body, block + 4096);
    free(block);
}
