// A library whose constructor starts a thread and forks: before that of a preloaded hakmem, which comes after those of the
// libraries that the program is linked with.
#include <sys/wait.h>

#include "behaviour.h"

#define FORKS 200
// A large block: taken and given under a lock that all threads share.
#define BYTES 200000

unsigned early_forks(void);

static unsigned forks;
static _Atomic bool is_over;

static void take_and_give(void) {
    char *block = malloc(BYTES);
    require(block != NULL);
    block[0] = 1;
    free(block);
}

static void *go_on(void *argument) {
    while (!is_over) {
        take_and_give();
    }
    return argument;
}

__attribute__((constructor(101))) static void begin(void) {
    pthread_t thread;
    start_thread(&thread, 0, go_on, NULL);
    for (; forks < FORKS; forks++) {
        const pid_t child = fork();
        require(child >= 0);
        if (child == 0) {
            // A lock that the other thread held would be held for ever here.
            alarm(20);
            take_and_give();
            _exit(0);
        }
        int status = -1;
        require(waitpid(child, &status, 0) == child);
        require_that(status == 0, "the child of fork %u ended with %x", forks, (unsigned)status);
    }
    is_over = true;
    require(pthread_join(thread, NULL) == 0);
}

unsigned early_forks(void) {
    return forks;
}
