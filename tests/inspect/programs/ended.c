// Threads that have ended: ended threads, ended main, ended later
//
// "threads": three threads allocate side by side, keep some blocks and end. "main": the main thread ends, and another
// one goes on; "later": it says "started" and waits for a line before it does. "ready" is printed then; the end of
// standard input ends the program.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS 3
#define BLOCKS 500

static pthread_barrier_t barrier;
static pthread_t main_thread;

static void *keep_blocks(void *argument) {
    for (int i = 0; i < BLOCKS; i++) {
        memset(malloc(1000), 1, 1000);
    }
    pthread_barrier_wait(&barrier);
    return argument;
}

static void await_end(void) {
    char byte;
    if (write(1, "ready\n", 6) != 6) {
        _exit(2);
    }
    while (read(0, &byte, 1) > 0) {
    }
    _exit(0);
}

static void *outlive_main(void *argument) {
    pthread_join(main_thread, NULL);
    memset(malloc(1000), 1, 1000);
    await_end();
    return argument;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        return 2;
    }
    pthread_t threads[THREADS];
    if (strcmp(argv[1], "threads") != 0) {
        char byte;
        if (strcmp(argv[1], "later") == 0 &&
            (write(1, "started\n", 8) != 8 || read(0, &byte, 1) != 1)) {
            return 2;
        }
        main_thread = pthread_self();
        if (pthread_create(threads, NULL, outlive_main, NULL) != 0) {
            return 2;
        }
        pthread_exit(NULL);
    }
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, keep_blocks, NULL) != 0) {
            return 2;
        }
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    await_end();
    return 0;
}
