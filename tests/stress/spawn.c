// posix_spawn, vfork and system from threads that allocate: children that share or copy the
// parent's memory for a moment and become another program.
#include "behaviour.h"

#include <spawn.h>

enum { THREAD_COUNT = 4, SPAWN_COUNT = 10 };

static uint64_t base_seed;

extern char **environ;

static char *const command[] = {(char *)(uintptr_t) "true", NULL};

static pid_t spawn_child(void) {
    pid_t child = -1;
    require(posix_spawnp(&child, "true", NULL, NULL, command, environ) == 0);
    return child;
}

// On its own: the child runs on this frame.
__attribute__((noinline)) static pid_t vfork_child(void) {
    pid_t child = vfork();
    if (child == 0) {
        execvp("true", command);
        _exit(127);
    }
    return child;
}

static void *work(void *argument) {
    uint64_t seed = random_stream(base_seed, (uint64_t)(uintptr_t)argument);
    for (int i = 0; i < SPAWN_COUNT; i++) {
        void *blocks[100];
        for (int b = 0; b < 100; b++) {
            blocks[b] = malloc(random_log_size(&seed, 50000));
            require(blocks[b] != NULL);
        }
        pid_t child = i % 2 == 0 ? spawn_child() : vfork_child();
        for (int b = 0; b < 100; b++) {
            free(blocks[b]);
        }
        int status = -1;
        require(waitpid(child, &status, 0) == child);
        require_that(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child: status %#x",
                     (unsigned int)status);
    }
    return NULL;
}

int main(void) {
    behaviour_require_allocator();
    base_seed = behaviour_seed();
    pthread_t threads[THREAD_COUNT];
    for (uintptr_t i = 0; i < THREAD_COUNT; i++) {
        start_thread(&threads[i], 0, work, (void *)(i + 1));
    }
    for (int i = 0; i < THREAD_COUNT; i++) {
        require(pthread_join(threads[i], NULL) == 0);
    }
    int status = system("exit 3");
    require(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    behaviour_require_sound_heap();
    return 0;
}
