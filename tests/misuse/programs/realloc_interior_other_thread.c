// Realloc of a pointer into a block that another thread owns.
#include "misuse.h"

static void *body(void *argument) {
    void *result = realloc(argument, 500);
    require(!ignored() || (result == NULL && errno == EINVAL));
    return NULL;
}

void mistake(void) {
    char *block = (char *)malloc(208);
    require(block != NULL);
    about_block(block + 32, block);
    on_other_thread(body, block + 32);
    free(block);
}
