// Has something to learn of free memory inside slabs: sparse
//
// Time and again slabs are filled, all but one block in 32 are freed, time passes, and the others are taken again. Then "ready" is
// printed, and the end of standard input ends the program.
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define COUNT 2048
#define BYTES 4096
#define KEPT 32
#define PASSED 400
#define PASSED_BYTES 2048
#define WAVES 12
#define STEPS 8
#define STEP_MS 12

static void *written(size_t bytes) {
    void *block = malloc(bytes);
    if (block == NULL) {
        abort();
    }
    return memset(block, 1, bytes);
}

// So many other blocks that the library sees the time.
static void pass_time(void) {
    static void *passed[PASSED];
    const struct timespec step = {0, STEP_MS * 1000000L};
    nanosleep(&step, NULL);
    for (int i = 0; i < PASSED; i++) {
        passed[i] = written(PASSED_BYTES);
    }
    for (int i = 0; i < PASSED; i++) {
        free(passed[i]);
    }
}

int main(void) {
    static void *blocks[COUNT];
    for (int wave = 0; wave < WAVES; wave++) {
        for (int i = 0; i < COUNT; i++) {
            blocks[i] = blocks[i] == NULL ? written(BYTES) : blocks[i];
        }
        for (int i = 0; i < COUNT; i++) {
            if (i % KEPT != 0) {
                free(blocks[i]);
                blocks[i] = NULL;
            }
        }
        for (int step = 0; step < STEPS; step++) {
            pass_time();
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
