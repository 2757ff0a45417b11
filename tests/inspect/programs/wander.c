// Has something to learn: wander OPERATIONS
//
// Blocks of 2 to 32 KiB come and go at random among 400; then "ready" is printed, and the end of standard input ends the
// program.
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#define SLOTS 400

static uint64_t state = 42;

static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

int main(int argc, char **argv) {
    static void *slots[SLOTS];
    if (argc != 2) {
        return 2;
    }
    for (long left = atol(argv[1]); left > 0; left--) {
        void **slot = &slots[next() % SLOTS];
        if (*slot == NULL) {
            *slot = malloc(2048 + next() % (30 * 1024));
        } else {
            free(*slot);
            *slot = NULL;
        }
    }
    char byte;
    if (write(1, "ready\n", 6) != 6) {
        return 2;
    }
    while (read(0, &byte, 1) > 0) {
    }
    return 0;
}
