// reallocarray whose product does not fit size_t: NULL, ENOMEM, and the block is as it was.
#include "misuse.h"

void mistake(void) {
    unsigned char *block = (unsigned char *)malloc(208);
    require(block != NULL);
    pattern_fill(block, 208, 1);
    errno = 0;
    contract(reallocarray(block, opaque(SIZE_MAX / 2 + 1), 2) == NULL && errno == ENOMEM);
    errno = 0;
    contract(reallocarray(NULL, opaque((size_t)1 << 32), (size_t)1 << 32) == NULL &&
             errno == ENOMEM);
    contract(pattern_differs(block, 208, 1) == 208);
    free(block);
}
