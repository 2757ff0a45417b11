// A thread takes much, then sleeps or ends, and another one frees all of it and stops: nothing that waits for the first one may stay.
#include "behaviour.h"

#include <semaphore.h>

enum { BLOCK_BYTES = 1000, BLOCK_COUNT = 400 * 1024 };
// What may wait at the one heap, and stay free at each and in empty runs: 128, 32 and 32 MiB, and their last slabs.
enum { LEFT_MIB_MAX = 208 };

static void *blocks[BLOCK_COUNT];
static sem_t filled, released;
static bool sleeps;

static void *fill(void *argument) {
    for (size_t i = 0; i < BLOCK_COUNT; i++) {
        blocks[i] = malloc(BLOCK_BYTES);
        require(blocks[i] != NULL);
        memset(blocks[i], 1, BLOCK_BYTES);
    }
    if (sleeps) {
        sem_post(&filled);
        sem_wait(&released);
    }
    return argument;
}

static void shuffle(void) {
    uint64_t seed = 1;
    for (size_t i = BLOCK_COUNT - 1; i > 0; i--) {
        const size_t other = random_below(&seed, i + 1);
        void *block = blocks[i];
        blocks[i] = blocks[other];
        blocks[other] = block;
    }
}

static void free_all(const char *what) {
    for (size_t i = 0; i < BLOCK_COUNT; i++) {
        free(blocks[i]);
    }
    const size_t left = rss_bytes();
    behaviour_say("%s: %zu MiB resident of %zu", what, left / MIB, rss_peak_bytes() / MIB);
    require_that(!behaviour_on_hakmem() || left < LEFT_MIB_MAX * MIB, "%s: %zu MiB resident", what,
                 left / MIB);
    behaviour_require_sound_heap();
}

static void run(const char *what, bool in_order) {
    pthread_t thread;
    start_thread(&thread, 0, fill, NULL);
    if (sleeps) {
        sem_wait(&filled);
    } else {
        require(pthread_join(thread, NULL) == 0);
    }
    if (!in_order) {
        shuffle();
    }
    free_all(what);
    if (sleeps) {
        sem_post(&released);
        require(pthread_join(thread, NULL) == 0);
    }
}

// Each in a process of its own: whose demand comes in waves keeps what a wave needs.
static void run_in_a_child(const char *what, bool in_order) {
    const pid_t child = fork();
    require(child >= 0);
    if (child == 0) {
        run(what, in_order);
        _exit(0);
    }
    int status;
    require(waitpid(child, &status, 0) == child);
    require_that(status == 0, "%s: status %#x", what, (unsigned int)status);
}

int main(void) {
    behaviour_require_allocator();
    require(sem_init(&filled, 0, 0) == 0 && sem_init(&released, 0, 0) == 0);
    run_in_a_child("its thread has ended", true);
    run_in_a_child("its thread has ended, in no order", false);
    sleeps = true;
    run_in_a_child("its thread sleeps", true);
    run_in_a_child("its thread sleeps, in no order", false);
    return 0;
}
