// The owner frees a block, then another thread frees it, which exists already: starting one would
// free and take blocks of its own.
#include "misuse.h"

static pthread_barrier_t freed;

static void *body(void *argument) {
    pthread_barrier_wait(&freed);
    free(argument);
    return NULL;
}

void mistake(void) {
    void *block = malloc(208);
    require(block != NULL);
    about_block(block, block);
    pthread_t thread;
    require(pthread_barrier_init(&freed, NULL, 2) == 0);
    start_thread(&thread, 0, body, block);
    free(block);
    pthread_barrier_wait(&freed);
    require(pthread_join(thread, NULL) == 0);
}
