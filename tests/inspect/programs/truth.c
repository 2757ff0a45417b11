// Allocates and frees what it then tells exactly: truth THREADS BLOCKS FILE [churn]
//
// Each thread allocates BLOCKS blocks of sizes from its own random sequence, then frees every third of its own, and
// every seventh of the next thread's. "started" is printed before, "ready" after; FILE then has address and size of
// each block that lives, as pairs of 8 bytes. With `churn` the threads go on after that: each replaces blocks of a
// table of its own, so that it always holds CHURN_SLOTS of them or one less. A line on standard input begins the work,
// its end ends the program.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CHURN_SLOTS 1000

struct block {
    uintptr_t start;
    uint64_t bytes;
};

static unsigned thread_count, block_count;
static int churns;
static struct block *blocks;  // of thread t: those from t * block_count on
static pthread_barrier_t barrier;

static uint64_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

// Mostly small, some large, a few huge.
static uint64_t pick_bytes(uint64_t *state) {
    const uint64_t kind = next_random(state) % 1000;
    if (kind < 900) {
        return 1 + next_random(state) % 1024;
    }
    if (kind < 995) {
        return 1 + next_random(state) % (48 << 10);
    }
    return kind < 999 ? (65 << 10) + next_random(state) % (1 << 20)
                      : (3 << 20) + next_random(state) % (1 << 20);
}

static void churn(uint64_t state) {
    static __thread void *slots[CHURN_SLOTS];
    for (;;) {
        const uint64_t slot = next_random(&state) % CHURN_SLOTS;
        free(slots[slot]);
        slots[slot] = malloc(1 + next_random(&state) % 2000);
    }
}

static void *work(void *argument) {
    const unsigned thread = (unsigned)(uintptr_t)argument;
    uint64_t state = 977 + thread;
    struct block *own = blocks + (size_t)thread * block_count;
    pthread_barrier_wait(&barrier);  // all threads are there
    pthread_barrier_wait(&barrier);  // the work may begin
    for (unsigned i = 0; i < block_count; i++) {
        own[i].bytes = pick_bytes(&state);
        own[i].start = (uintptr_t)malloc(own[i].bytes);
    }
    for (unsigned i = 0; i < block_count; i += 3) {
        free((void *)own[i].start);
        own[i].start = 0;
    }
    pthread_barrier_wait(&barrier);
    struct block *others = blocks + (size_t)((thread + 1) % thread_count) * block_count;
    for (unsigned i = 0; i < block_count; i += 7) {
        if (others[i].start != 0) {
            free((void *)others[i].start);
            others[i].start = 0;
        }
    }
    pthread_barrier_wait(&barrier);
    if (churns) {
        churn(state);
    }
    pause();
    return NULL;
}

static void say(const char *text) {
    if (write(STDOUT_FILENO, text, strlen(text)) < 0) {
        _exit(2);
    }
}

static void write_truth(const char *path) {
    const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const size_t total = (size_t)thread_count * block_count;
    for (size_t i = 0; i < total; i++) {
        if (blocks[i].start != 0 && write(file, &blocks[i], sizeof blocks[i]) != sizeof blocks[i]) {
            _exit(2);
        }
    }
    close(file);
}

int main(int argc, char **argv) {
    if (argc < 4) {
        return 2;
    }
    thread_count = (unsigned)atoi(argv[1]);
    block_count = (unsigned)atoi(argv[2]);
    churns = argc > 4;
    blocks = mmap(NULL, (size_t)thread_count * block_count * sizeof *blocks, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_barrier_init(&barrier, NULL, thread_count + 1);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 << 10);
    for (unsigned t = 0; t < thread_count; t++) {
        pthread_t thread;
        if (pthread_create(&thread, &attributes, work, (void *)(uintptr_t)t) != 0) {
            return 2;
        }
    }
    pthread_barrier_wait(&barrier);
    say("started\n");
    char byte;
    if (read(STDIN_FILENO, &byte, 1) != 1) {
        return 2;
    }
    for (int step = 0; step < 3; step++) {
        pthread_barrier_wait(&barrier);
    }
    write_truth(argv[3]);
    say("ready\n");
    while (read(STDIN_FILENO, &byte, 1) == 1) {
    }
    _exit(0);
}
