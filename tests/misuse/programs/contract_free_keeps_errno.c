// free leaves errno alone, for blocks of all kinds.
#include "misuse.h"

void mistake(void) {
    static const size_t sizes[] = {16, 208, 8192, 200 * KIB, 64 * MIB};
    for (size_t i = 0; i < 5; i++) {
        void *block = malloc(sizes[i]);
        require(block != NULL);
        errno = 77;
        free(block);
        contract(errno == 77);
    }
    errno = 77;
    free(NULL);
    contract(errno == 77);
}
