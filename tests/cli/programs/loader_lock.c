// A thread that has the loader's lock of its list all the time, and forks beside it whose children exit. Exits with 0 when all did.
#define _GNU_SOURCE
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static _Atomic int looks;

static int look(struct dl_phdr_info *info, size_t bytes, void *context) {
    (void)info;
    (void)bytes;
    (void)context;
    looks++;
    usleep(1000);
    return 0;
}

static void *look_for_ever(void *unused) {
    for (;;) {
        dl_iterate_phdr(look, unused);
    }
    return NULL;
}

int main(void) {
    pthread_t thread;
    alarm(60);
    free(malloc(10));
    pthread_create(&thread, NULL, look_for_ever, NULL);
    while (looks == 0) {
        usleep(1000);
    }
    for (int i = 0; i < 10; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(30);
            exit(3);
        }
        int status = 0;
        waitpid(child, &status, 0);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 3) {
            _exit(10 + i);
        }
    }
    _exit(0);
}
