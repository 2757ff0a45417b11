// Free of an address on another thread's stack.
#include "misuse.h"

static void *body(void *argument) {
    char here[256] = {1};
    void *bad = align16(here + 64);
    (void)argument;
    about(bad);
    free(opaque_pointer(bad));
    return NULL;
}

void mistake(void) {
    on_other_thread(body, NULL);
}
