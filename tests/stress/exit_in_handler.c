// A signal handler that ends the process with exit(), in the middle of whatever malloc was doing: it neither hangs nor tells of
// misuse.
#include "behaviour.h"

#include <malloc.h>
#include <signal.h>
#include <sys/time.h>

enum { PROCESS_COUNT = 300 };

static void end(int number) {
    (void)number;
    exit(7);
}

extern size_t hakmem_check(void) __attribute__((weak));

// Takes one lock after the other.
static void look(void) {
    for (int i = 0; i < 20; i++) {
#if defined(__GLIBC__)
        mallinfo2();
#endif
        require(hakmem_check == NULL || hakmem_check() == 0);
    }
}

static void churn_until_the_end(uint64_t seed) {
    static void *kept[500];
    for (;;) {
        const size_t bytes = random_log_size(&seed, random_below(&seed, 50) == 0 ? 3 * MIB : 3000);
        for (size_t i = 0; i < 500; i += 1 + random_below(&seed, 3)) {
            free(kept[i]);
            kept[i] = malloc(i % 50 == 0 ? bytes : bytes % 512);
            kept[i] = i % 7 == 0 ? realloc(kept[i], bytes % 1000 + 1) : kept[i];
        }
        switch (random_below(&seed, 20)) {
        case 0:
            malloc_trim(0);
            break;
        case 1:
            look();
            break;
        default:
            break;
        }
    }
}

static pid_t start_one(uint64_t seed) {
    const pid_t child = fork();
    require(child >= 0);
    if (child == 0) {
        alarm(300);  // tests/patience.py: a hang ends as a signal
        struct sigaction action = {.sa_handler = end};
        require(sigaction(SIGPROF, &action, NULL) == 0);
        const struct itimerval soon = {{0, 0}, {0, 1000 + (suseconds_t)random_below(&seed, 5000)}};
        require(setitimer(ITIMER_PROF, &soon, NULL) == 0);
        churn_until_the_end(seed);
    }
    return child;
}

int main(void) {
    behaviour_require_allocator();
    uint64_t base_seed = behaviour_seed();
    for (uint64_t i = 0; i < PROCESS_COUNT; i++) {
        int status = 0;
        const pid_t child = start_one(random_stream(base_seed, i));
        require(waitpid(child, &status, 0) == child);
        require_that(WIFEXITED(status) && WEXITSTATUS(status) == 7, "process %d ended with %x",
                     (int)i, (unsigned)status);
    }
    behaviour_require_sound_heap();
    return 0;
}
