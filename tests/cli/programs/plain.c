// Calls malloc and free; exits with its first argument.
#include <stdlib.h>

int main(int argc, char **argv) {
    for (int i = 0; i < 1000; i++) {
        char *volatile block = malloc(100);
        block[0] = 1;
        free(block);
    }
    return argc > 1 ? atoi(argv[1]) : 0;
}
