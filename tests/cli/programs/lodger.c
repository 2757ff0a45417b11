// A library that allocates. As an auditor (LD_AUDIT) the loader gives it a namespace of its own, and a C library of its own.
#include <stdlib.h>

unsigned int la_version(unsigned int version) {
    char *volatile block = malloc(100);
    free(block);
    return block == NULL ? 0 : version;
}
