// realloc to zero bytes frees the block and returns NULL, as in glibc, or returns a block.
#include "misuse.h"

void mistake(void) {
    for (int i = 0; i < 1000; i++) {
        void *block = malloc(64 * KIB);
        require(block != NULL);
        free(realloc(block, opaque(0)));
    }
    contract(malloc_usable_size(NULL) == 0);
}
