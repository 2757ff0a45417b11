// realloc to impossible sizes: NULL, ENOMEM, and the block is as it was.
#include "misuse.h"

#include "impossible.h"

void mistake(void) {
    static const size_t sizes[] = {208, 8192, 200 * KIB, 5 * MIB};
    for (size_t s = 0; s < 4; s++) {
        unsigned char *block = (unsigned char *)malloc(sizes[s]);
        require(block != NULL);
        pattern_fill(block, 208, 1);
        for (size_t i = 0; i < IMPOSSIBLE_COUNT; i++) {
            errno = 0;
            contract(realloc(block, opaque(impossible[i])) == NULL && errno == ENOMEM);
            errno = 0;
            contract(realloc(NULL, opaque(impossible[i])) == NULL && errno == ENOMEM);
        }
        contract(pattern_differs(block, 208, 1) == 208);
        free(block);
    }
}
