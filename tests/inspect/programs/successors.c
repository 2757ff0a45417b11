// Threads of a short life, one after another, until the learner lets them leave their blocks; then "ready" is printed, and
// the end of standard input ends the program. With an argument: as many threads, whatever the learner says.
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#define BLOCKS 300

static void *live_shortly(void *argument) {
    void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(48);
    }
    for (int i = 0; i < BLOCKS; i++) {
        free(blocks[i]);
    }
    return argument;
}

int main(int argc, char **argv) {
    const int most = argc > 1 ? atoi(argv[1]) : 20000;
    size_t before = 0;
    // What main caches does not come to a tenth of that.
    for (int i = 0; i < most && (argc > 1 || before < 200 * 48); i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, live_shortly, NULL) != 0) {
            return 2;
        }
        pthread_join(thread, NULL);
        before = mallinfo2().fsmblks;
    }
    char byte;
    if (write(1, "ready\n", 6) != 6) {
        return 2;
    }
    while (read(0, &byte, 1) > 0) {
    }
    return 0;
}
