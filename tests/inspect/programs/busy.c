// Threads that allocate and free without a pause: busy THREADS. "ready" is printed when all of them run; SIGUSR1 adds
// one to a count that is printed at the end, which the end of standard input brings about.
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SLOTS 500

static pthread_barrier_t barrier;
static volatile sig_atomic_t signals;
static uint64_t operations[64];

static void *work(void *argument) {
    const uint64_t thread = (uintptr_t)argument;
    uint64_t state = 31 + thread;
    void *slots[SLOTS];
    for (unsigned i = 0; i < SLOTS; i++) {
        slots[i] = malloc(100);
    }
    pthread_barrier_wait(&barrier);
    for (;;) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const unsigned slot = (unsigned)(state >> 33) % SLOTS;
        free(slots[slot]);
        slots[slot] = malloc((state >> 44) % 4000);
        operations[thread]++;
    }
    return NULL;
}

static void on_signal(int signal) {
    (void)signal;
    signals++;
}

int main(int argc, char **argv) {
    const int count = argc > 1 ? atoi(argv[1]) : 1;
    signal(SIGUSR1, on_signal);
    pthread_barrier_init(&barrier, NULL, (unsigned)count + 1);
    for (int i = 0; i < count && i < 64; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, (void *)(uintptr_t)i) != 0) {
            return 2;
        }
    }
    pthread_barrier_wait(&barrier);
    puts("ready");
    fflush(stdout);
    char byte;
    ssize_t got;
    while ((got = read(STDIN_FILENO, &byte, 1)) != 0) {
        // A line asks how far the threads are.
        if (got > 0) {
            uint64_t sum = 0;
            for (int i = 0; i < 64; i++) {
                sum += operations[i];
            }
            printf("%llu %d\n", (unsigned long long)sum, (int)signals);
            fflush(stdout);
        }
    }
    return 0;
}
