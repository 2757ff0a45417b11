// Forks beside threads that allocate under another library's lock, which that library's own handlers of fork take. If
// the allocator's handler ran before that one, it would hold the heap while the thread that holds the lock waits for it.
#include "behaviour.h"

void hold_and_allocate(uint64_t *seed);

enum { THREAD_COUNT = 3, FORK_COUNT = 60 };

static _Atomic bool all_done;

static void *hold(void *argument) {
    uint64_t seed = (uint64_t)(uintptr_t)argument;
    while (!all_done) {
        hold_and_allocate(&seed);
    }
    return NULL;
}

static void in_the_child(void) {
    uint64_t seed = 7;
    hold_and_allocate(&seed);
    pthread_t thread;
    start_thread(&thread, 0, hold, NULL);
    hold_and_allocate(&seed);
    behaviour_require_sound_heap();
    _exit(0);
}

static void fork_once(void) {
    const pid_t child = fork();
    require(child >= 0);
    if (child == 0) {
        in_the_child();
    }
    int status;
    require(waitpid(child, &status, 0) == child);
    require(status == 0);
}

int main(void) {
    // A process that has not allocated yet.
    fork_once();
    behaviour_require_allocator();
    pthread_t threads[THREAD_COUNT];
    for (int i = 0; i < THREAD_COUNT; i++) {
        start_thread(&threads[i], 0, hold, (void *)(uintptr_t)(i + 1));
    }
    for (int i = 0; i < FORK_COUNT; i++) {
        fork_once();
    }
    all_done = true;
    for (int i = 0; i < THREAD_COUNT; i++) {
        require(pthread_join(threads[i], NULL) == 0);
    }
    behaviour_require_sound_heap();
    return 0;
}
