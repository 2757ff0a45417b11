// Zero bytes and one byte from every function: blocks of their own.
#include "misuse.h"

void mistake(void) {
    void *blocks[10] = {malloc(opaque(0)),
                        malloc(1),
                        calloc(opaque(0), 8),
                        calloc(1, 1),
                        memalign(64, opaque(0)),
                        memalign(64, 1),
                        aligned_alloc(64, opaque(0)),
                        aligned_alloc(64, 64),
                        realloc(NULL, opaque(0)),
                        realloc(NULL, 1)};
    for (int i = 0; i < 10; i++) {
        contract(blocks[i] != NULL);
        for (int j = 0; j < i; j++) {
            contract(blocks[i] != blocks[j]);
        }
    }
    for (int i = 0; i < 10; i++) {
        free(blocks[i]);
    }
}
