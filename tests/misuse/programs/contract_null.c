// NULL is welcome where the standard says so.
#include "misuse.h"

void mistake(void) {
    free(NULL);
    void *block = realloc(NULL, 208);
    contract(block != NULL && malloc_usable_size(block) >= 208);
    contract(malloc_usable_size(NULL) == 0);
    free(block);
}
