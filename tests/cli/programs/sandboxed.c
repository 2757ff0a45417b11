// Ends in a sandbox like that of a daemon that shows an unknown caller nothing: opening is refused, and what it has no need of kills.
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define ALLOW(name)                                        \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

int main(int count, char **values) {
    (void)values;
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(mmap),
        ALLOW(munmap),
        ALLOW(mremap),
        ALLOW(mprotect),
        ALLOW(madvise),
        ALLOW(futex),
        ALLOW(brk),
        ALLOW(clock_gettime),
        ALLOW(getpid),
        ALLOW(getrandom),
        ALLOW(rt_sigprocmask),
        ALLOW(read),
        ALLOW(write),
        ALLOW(close),
        ALLOW(exit_group),
        // With a word: what figures at the end of a process ask for as well.
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, count > 1 ? SYS_fstat : SYS_read, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
    free(malloc(100));
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        return 99;
    }
    for (size_t bytes = 1; bytes < 1000; bytes++) {
        free(malloc(bytes));
    }
    return 3;
}
