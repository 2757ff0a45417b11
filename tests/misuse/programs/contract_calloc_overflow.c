// calloc whose product does not fit size_t: NULL and ENOMEM.
#include "misuse.h"

void mistake(void) {
    static const size_t factors[][2] = {{SIZE_MAX, 2},
                                        {SIZE_MAX / 2 + 1, 2},
                                        {(size_t)1 << 32, (size_t)1 << 32},
                                        {17, SIZE_MAX / 16}};
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
        errno = 0;
        contract(calloc(opaque(factors[i][0]), opaque(factors[i][1])) == NULL && errno == ENOMEM);
    }
}
