// Imports realloc through a slot that is bound at the first call, and never calls it.
#include <stdlib.h>

int main(int argc, char **argv) {
    (void)argv;
    char *volatile block = malloc(100);
    if (argc > 100) {
        block = realloc(block, 200);
    }
    free(block);
    return 0;
}
