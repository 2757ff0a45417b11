// Two threads free the same large block at the same moment.
#include "misuse.h"

static pthread_barrier_t barrier;

static void *body(void *argument) {
    pthread_barrier_wait(&barrier);
    free(argument);
    return NULL;
}

void mistake(void) {
    void *block = malloc(200 * KIB);
    require(block != NULL);
    about_block(block, block);
    pthread_t threads[2];
    require(pthread_barrier_init(&barrier, NULL, 2) == 0);
    for (int i = 0; i < 2; i++) {
        start_thread(&threads[i], 0, body, block);
    }
    for (int i = 0; i < 2; i++) {
        require(pthread_join(threads[i], NULL) == 0);
    }
}
