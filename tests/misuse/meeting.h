// Frees of one block by threads that exist already: starting one would free and take blocks itself.
#pragma once

#include "misuse.h"

static pthread_barrier_t meeting;

static void *free_after_meeting(void *block) {
    pthread_barrier_wait(&meeting);
    free(block);
    return NULL;
}

// Two threads at the same moment.
static inline void free_by_two_at_once(void *block) {
    pthread_t threads[2];
    require(pthread_barrier_init(&meeting, NULL, 2) == 0);
    for (int i = 0; i < 2; i++) {
        start_thread(&threads[i], 0, free_after_meeting, block);
    }
    for (int i = 0; i < 2; i++) {
        require(pthread_join(threads[i], NULL) == 0);
    }
}

// The calling thread, then another one.
static inline void free_then_by_another(void *block) {
    pthread_t thread;
    require(pthread_barrier_init(&meeting, NULL, 2) == 0);
    start_thread(&thread, 0, free_after_meeting, block);
    free(block);
    pthread_barrier_wait(&meeting);
    require(pthread_join(thread, NULL) == 0);
}
