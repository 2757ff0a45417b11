// A thread that waits for its child until that has opened a pipe: vforked vfork|clone|spawn PIPE
//
// The child runs in this process's memory. Another thread allocates all the while. "ready" is printed before, "back" when the
// child has let go.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STACK_BYTES 65536

extern char **environ;
static const char *path;
static _Alignas(16) char stack[STACK_BYTES];

static void *allocate(void *argument) {
    for (;;) {
        free(malloc(1000));
    }
    return argument;
}

static int open_and_end(void *argument) {
    (void)argument;
    _exit(open(path, O_RDONLY) < 0);
}

static int spawn(void) {
    char *words[] = {"true", NULL};
    posix_spawn_file_actions_t actions;
    pid_t child;
    return posix_spawn_file_actions_init(&actions) == 0 &&
                   posix_spawn_file_actions_addopen(&actions, 0, path, O_RDONLY, 0) == 0 &&
                   posix_spawnp(&child, "true", &actions, NULL, words, environ) == 0
               ? child
               : -1;
}

static void say(const char *line) {
    if (write(1, line, strlen(line)) < 0) {
        _exit(2);
    }
}

int main(int argc, char **argv) {
    pthread_t thread;
    if (argc != 3 || pthread_create(&thread, NULL, allocate, NULL) != 0) {
        return 2;
    }
    path = argv[2];
    say("ready\n");
    pid_t child;
    if (strcmp(argv[1], "vfork") == 0) {
        child = vfork();
        if (child == 0) {
            open_and_end(NULL);
        }
    } else if (strcmp(argv[1], "clone") == 0) {
        child = clone(open_and_end, stack + STACK_BYTES, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
    } else {
        child = spawn();
    }
    say(child > 0 ? "back\n" : "refused\n");
    pause();
    return 0;
}
