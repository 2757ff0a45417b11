// A freed block overwritten after 2,000 other frees of its size.
#include "misuse.h"

void mistake(void) {
    enum { COUNT = 2000 };
    static void *others[COUNT];
    char *block = (char *)malloc(208);
    for (int i = 0; i < COUNT; i++) {
        others[i] = malloc(208);
        require(block != NULL && others[i] != NULL);
    }
    about_block(block, block);
    free(block);
    for (int i = 0; i < COUNT; i++) {
        free(others[i]);
    }
    memset(opaque_pointer(block), 0x41, 16);
}
