// Holds very many small blocks, most of which it never writes: many BLOCKS BYTES TOUCHED_SHARE
//
// Every TOUCHED_SHARE-th block is written, the others cost address space only; every ninth is freed. "ready" is printed
// then; the end of standard input ends the program.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc != 4) {
        return 2;
    }
    const size_t count = strtoul(argv[1], NULL, 10);
    const size_t bytes = strtoul(argv[2], NULL, 10);
    const size_t share = strtoul(argv[3], NULL, 10);
    for (size_t i = 0; i < count; i++) {
        char *block = malloc(bytes);
        if (block == NULL) {
            return 3;
        }
        if (i % share == 0) {
            block[0] = 1;
        }
        if (i % 9 == 0) {
            free(block);
        }
    }
    if (write(STDOUT_FILENO, "ready\n", 6) != 6) {
        return 2;
    }
    char byte;
    while (read(STDIN_FILENO, &byte, 1) == 1) {
    }
    return 0;
}
