// Starts a program as the kernel starts a setuid one: with AT_SECURE set in its auxiliary vector.
// secure 0|1 PROGRAM ARGUMENT...: 0 starts it in the same way and changes nothing. Ends as it ends.
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/procfs.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define REQUIRE(condition)                 \
    do {                                   \
        if (!(condition)) {                \
            perror("secure: " #condition); \
            exit(125);                     \
        }                                  \
    } while (0)

static long stack_of(pid_t child) {
    struct user_regs_struct registers;
    struct iovec area = {&registers, sizeof registers};
    REQUIRE(ptrace(PTRACE_GETREGSET, child, NT_PRSTATUS, &area) == 0);
#if defined(__x86_64__)
    return (long)registers.rsp;
#else
    return (long)registers.sp;
#endif
}

static long word_at(pid_t child, long address) {
    return ptrace(PTRACE_PEEKDATA, child, address, NULL);
}

// The stack of a fresh program: argc, argv, NULL, environment, NULL, pairs of the auxiliary vector.
static void make_secure(pid_t child) {
    const long size = (long)sizeof(long);
    long at = stack_of(child);
    at += (word_at(child, at) + 2) * size;
    while (word_at(child, at) != 0) {
        at += size;
    }
    for (at += size; word_at(child, at) != AT_SECURE; at += 2 * size) {
        REQUIRE(word_at(child, at) != AT_NULL);
    }
    REQUIRE(ptrace(PTRACE_POKEDATA, child, at + size, 1L) == 0);
}

int main(int count, char **values) {
    REQUIRE(count >= 3);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        REQUIRE(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
        execv(values[2], values + 2);
        _exit(126);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child && WIFSTOPPED(status));
    if (strcmp(values[1], "1") == 0) {
        make_secure(child);
    }
    REQUIRE(ptrace(PTRACE_DETACH, child, NULL, NULL) == 0);
    REQUIRE(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 124;
}
