// Keeps blocks that two functions allocated: keepers
//
// "ready" is printed then; the end of standard input ends the program.
#include <stdlib.h>
#include <unistd.h>

static void *volatile kept[8];

__attribute__((noinline)) static void keep_small(int count) {
    for (int i = 0; i < count; i++) {
        kept[i] = malloc(100);
    }
    free(malloc(3000));
}

__attribute__((noinline)) static void keep_one(int i, size_t bytes) {
    kept[i] = malloc(bytes);
}

int main(void) {
    keep_small(3);
    keep_one(3, 1000);
    keep_one(4, 1);
    char byte;
    if (write(STDOUT_FILENO, "ready\n", 6) != 6) {
        return 2;
    }
    while (read(STDIN_FILENO, &byte, 1) == 1) {
    }
    return 0;
}
