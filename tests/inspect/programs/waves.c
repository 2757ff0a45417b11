// Has something to learn of memory: waves
//
// Small blocks that are written fill 64 MiB and stay; then memory in large blocks, and in one with a mapping of its own, comes
// and goes in waves. Then "ready" is printed, and the end of standard input ends the program.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SMALL_COUNT 65536
#define SMALL_BYTES 1024
#define LARGE_COUNT 64
#define LARGE_BYTES (1 << 20)
#define HUGE_BYTES (16 << 20)
#define WAVES 4

static void *written(size_t bytes) {
    void *block = malloc(bytes);
    if (block == NULL) {
        abort();
    }
    return memset(block, 1, bytes);
}

int main(void) {
    static void *small[SMALL_COUNT], *large[LARGE_COUNT];
    for (int i = 0; i < SMALL_COUNT; i++) {
        small[i] = written(SMALL_BYTES);
    }
    for (int wave = 0; wave < WAVES; wave++) {
        for (int i = 0; i < LARGE_COUNT; i++) {
            large[i] = written(LARGE_BYTES);
        }
        for (int i = 0; i < LARGE_COUNT; i++) {
            free(large[i]);
        }
        free(written(HUGE_BYTES));
    }
    char byte;
    if (write(1, "ready\n", 6) != 6) {
        return 2;
    }
    while (read(0, &byte, 1) > 0) {
    }
    return small[0] == NULL;
}
