// One child that exits, one that ends by _exit, one that is killed, one that execs /bin/true; each
// allocates first. Exits with 0 when every child ended as told.
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void allocate(void) {
    for (int i = 0; i < 10000; i++) {
        char *volatile block = malloc(64);
        block[0] = 1;
        if (i % 2 == 0) {
            free(block);
        }
    }
}

int main(void) {
    allocate();
    int expected[] = {3, 4, 128 + SIGKILL, 0};
    for (int i = 0; i < 4; i++) {
        pid_t child = fork();
        if (child == 0) {
            allocate();
            switch (i) {
            case 0:
                exit(3);
            case 1:
                _exit(4);
            case 2:
                kill(getpid(), SIGKILL);
                break;
            default:
                execl("/bin/true", "true", (char *)NULL);
            }
            _exit(99);
        }
        int status = 0;
        waitpid(child, &status, 0);
        int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        if (code != expected[i]) {
            return 10 + i;
        }
    }
    return 0;
}
