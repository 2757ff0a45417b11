// A large block freed again after others were freed around it.
#include "misuse.h"

void mistake(void) {
    void *before = malloc(200 * KIB);
    void *block = malloc(200 * KIB);
    void *behind = malloc(200 * KIB);
    require(before != NULL && block != NULL && behind != NULL);
    about_block(block, block);
    free(block);
    free(before);
    free(behind);
    free(opaque_pointer(block));
}
