// Tells its own books: books FILE
//
// A huge block comes and goes. Threads leave blocks of all kinds behind, some freed, some freed by others. Then
// hakmem_stats_json goes to FILE, "ready" is printed, and the end of standard input ends the program.
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "hakmem.h"

#pragma weak hakmem_stats_json

#define THREADS 4
#define BLOCKS 3000
#define PEAK_BYTES ((size_t)256 << 20)

static void *blocks[THREADS][BLOCKS];

static void *work(void *argument) {
    void **own = blocks[(uintptr_t)argument];
    for (size_t i = 0; i < BLOCKS; i++) {
        own[i] = malloc(i % 500 == 7 ? 3 << 20 : i % 100 == 5 ? 100000 : 1 + i % 3000);
    }
    for (size_t i = 0; i < BLOCKS; i += 3) {
        free(own[i]);
        own[i] = NULL;
    }
    return NULL;
}

static int write_part(void *context, const char *text, size_t bytes) {
    return write(*(int *)context, text, bytes) == (ssize_t)bytes ? 0 : -1;
}

int main(int argc, char **argv) {
    if (argc != 2 || hakmem_stats_json == NULL) {
        return 2;
    }
    free(malloc(PEAK_BYTES));
    malloc_trim(0);
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, work, (void *)i) != 0) {
            return 2;
        }
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    for (size_t i = 0; i < BLOCKS; i += 7) {
        free(blocks[1][i]);
    }
    int file = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (hakmem_stats_json(write_part, &file) != 0 || close(file) != 0 ||
        write(STDOUT_FILENO, "ready\n", 6) != 6) {
        return 2;
    }
    char byte;
    while (read(STDIN_FILENO, &byte, 1) == 1) {
    }
    return 0;
}
