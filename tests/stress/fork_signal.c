// A signal handler that forks, in the middle of whatever malloc was doing. The process has one
// thread, so that a fork that waited for a lock would wait for itself.
#include "behaviour.h"

#include <signal.h>
#include <sys/time.h>

enum { FORK_COUNT = 200 };

static uint64_t base_seed;

static volatile sig_atomic_t forks;
static volatile sig_atomic_t failed;

static void fork_now(int number) {
    (void)number;
    int saved = errno;
    if (forks < FORK_COUNT) {
        pid_t child = fork();
        if (child == 0) {
            _exit(7);
        }
        int status = 0;
        if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) ||
            WEXITSTATUS(status) != 7) {
            failed = 1;
        }
        forks = forks + 1;
    }
    errno = saved;
}

int main(void) {
    behaviour_require_allocator();
    base_seed = behaviour_seed();
    alarm(300);
    struct sigaction action = {.sa_handler = fork_now, .sa_flags = SA_RESTART};
    require(sigaction(SIGPROF, &action, NULL) == 0);
    struct itimerval every_ms = {{0, 1000}, {0, 1000}};
    require(setitimer(ITIMER_PROF, &every_ms, NULL) == 0);
    enum { KEPT_COUNT = 500 };
    static void *kept[KEPT_COUNT];
    static size_t sizes[KEPT_COUNT];
    uint64_t seed = random_stream(base_seed, 3);
    while (forks < FORK_COUNT) {
        // Sizes that keep the slow paths busy: batches of one class up and down, large, huge.
        size_t bytes = random_log_size(&seed, random_below(&seed, 50) == 0 ? 3 * MIB : 3000);
        for (size_t i = 0; i < KEPT_COUNT; i += 1 + random_below(&seed, 3)) {
            if (kept[i] != NULL) {
                require(pattern_differs(kept[i], sizes[i], i) == sizes[i]);
                free(kept[i]);
            }
            kept[i] = malloc(bytes > 3000 && i % 50 != 0 ? 100 : bytes);
            require(kept[i] != NULL);
            sizes[i] = bytes < 100 ? bytes : 100;
            pattern_fill(kept[i], sizes[i], i);
        }
    }
    require(failed == 0);
    for (size_t i = 0; i < KEPT_COUNT; i++) {
        free(kept[i]);
    }
    behaviour_require_sound_heap();
    return 0;
}
