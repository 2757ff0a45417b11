// A block freed by a thread that has ended, and written then: its quarantine ends with the process.
#include "misuse.h"

static void *block, *keep;

static void *body(void *unused) {
    (void)unused;
    block = malloc(208);
    keep = malloc(208);  // keeps the slab where it is
    require(block != NULL && keep != NULL);
    about_block(block, block);
    free(block);
    return NULL;
}

void mistake(void) {
    on_other_thread(body, NULL);
    memset(block, 0x41, 16);
}
