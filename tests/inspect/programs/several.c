// Holds 5,000 blocks of 1,000 bytes; an argument is a library that gets a namespace of its own.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 5000, BYTES = 1000 };

int main(int argc, char **argv) {
    for (int i = 0; i < BLOCKS; i++) {
        memset(malloc(BYTES), 1, BYTES);
    }
    if (argc > 1 && dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW) == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    puts("ready");
    fflush(stdout);
    return getchar() == EOF;
}
