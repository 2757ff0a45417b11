/*
 * Runs one program and reports what it and the children it waited for cost, as text lines on a
 * descriptor.
 *
 *   launch REPORT_FD [NAME=VALUE]... -- PROGRAM [ARGUMENT]...
 *
 * The caller cannot measure peak memory itself: the kernel carries the peak of the address
 * space that calls exec into the new program's figure, so a child of a 60 MiB Python never reports
 * less than 60 MiB. This process is small, and so is the error. The NAME=VALUE words go into the
 * program's environment only, so that a preloaded library is not loaded here.
 *
 * The program dies with this process, and this process with its parent, whose end is a SIGTERM; with
 * it goes its process group, the program's children among it: a killed caller leaves no server.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

enum { EXIT_LAUNCH_FAILED = 125 };

static long long now_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static long long microseconds(struct timeval value) {
    return value.tv_sec * 1000000LL + value.tv_usec;
}

/* The caller has ended. It made this process the leader of a group, in which is what the program
 * started, and nobody else. */
static void end_all(int number) {
    (void)number;
    kill(getpgrp() == getpid() ? 0 : getpid(), SIGKILL);
}

static void run_program(char **words, char **program, int report_fd) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(report_fd);
    while (words < program) {
        if (putenv(*words++) != 0) {
            _exit(EXIT_LAUNCH_FAILED);
        }
    }
    execvp(program[1], program + 1);
    fprintf(stderr, "launch: %s: %s\n", program[1], strerror(errno));
    _exit(EXIT_LAUNCH_FAILED);
}

int main(int argc, char **argv) {
    char **program = argv + 2;

    while (argc > 2 && *program != NULL && strcmp(*program, "--") != 0) {
        program++;
    }
    if (argc <= 2 || *program == NULL || program[1] == NULL) {
        fprintf(stderr, "usage: launch REPORT_FD [NAME=VALUE]... -- PROGRAM [ARGUMENT]...\n");
        return EXIT_LAUNCH_FAILED;
    }
    signal(SIGTERM, end_all);
    prctl(PR_SET_PDEATHSIG, SIGTERM);

    int report_fd = atoi(argv[1]);
    long long start_ns = now_ns();
    pid_t pid = fork();

    if (pid < 0) {
        perror("launch: fork");
        return EXIT_LAUNCH_FAILED;
    }
    if (pid == 0) {
        run_program(argv + 2, program, report_fd);
    }
    dprintf(report_fd, "pid %d\n", (int)pid);

    int status = 0;
    struct rusage usage;

    while (wait4(pid, &status, 0, &usage) < 0) {
        if (errno != EINTR) {
            perror("launch: wait4");
            return EXIT_LAUNCH_FAILED;
        }
    }
    int result = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);

    dprintf(report_fd, "status %d\nwall_ns %lld\nuser_us %lld\nsystem_us %lld\npeak_kib %ld\n",
            result, now_ns() - start_ns, microseconds(usage.ru_utime), microseconds(usage.ru_stime),
            usage.ru_maxrss);
    dprintf(report_fd, "minor_faults %ld\nmajor_faults %ld\n", usage.ru_minflt, usage.ru_majflt);
    dprintf(report_fd, "voluntary_switches %ld\ninvoluntary_switches %ld\n", usage.ru_nvcsw,
            usage.ru_nivcsw);
    return 0;
}
