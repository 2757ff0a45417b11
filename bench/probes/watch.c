/* watch: starts a program a number of times and prints one JSON line per run: exit status, time,
 * page faults, peak RSS, and with --memory what its address space held at the moment it exited.
 *
 *   watch [--count N] [--memory 0|1] [--set NAME=VALUE]... -- /path/to/program [argument...]
 *
 * The environment of the program holds what --set gives and nothing else; its standard output and
 * input are /dev/null. The watcher is small and static, since the kernel's ru_maxrss of a child
 * begins with the size of the process that started it.
 *
 * Sizes come from /proc/PID/smaps_rollup, read while the kernel holds the program at the very start
 * of its exit (PTRACE_EVENT_EXIT): exact page counts, where ru_maxrss is off by up to 64 pages
 * per CPU on kernels since 6.2, which batch the count.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_OWN_FAILURE = 125, SETTINGS_MAX = 32 };

struct plan {
    char *environment[SETTINGS_MAX + 1];
    char **command;
    unsigned long count;
    bool memory;
};

struct memory {
    bool read;
    uint64_t rss, pss, private_dirty, private_clean, shared_clean, anonymous;
};

static _Noreturn void fail(const char *what, const char *which) {
    dprintf(STDERR_FILENO, "watch: %s: %s\n", what, which);
    _exit(EXIT_OWN_FAILURE);
}

static void plan_parse(struct plan *plan, int argc, char **argv) {
    size_t setting_count = 0;
    int i = 1;
    for (; i + 1 < argc && strcmp(argv[i], "--") != 0; i += 2) {
        if (strcmp(argv[i], "--count") == 0) {
            plan->count = strtoul(argv[i + 1], NULL, 10);
        } else if (strcmp(argv[i], "--memory") == 0) {
            plan->memory = strcmp(argv[i + 1], "1") == 0;
        } else if (strcmp(argv[i], "--set") == 0 && setting_count < SETTINGS_MAX) {
            plan->environment[setting_count++] = argv[i + 1];
        } else {
            fail("not understood", argv[i]);
        }
    }
    if (i + 1 >= argc || strcmp(argv[i], "--") != 0 || plan->count == 0) {
        fail("usage", "watch [--count N] [--memory 0|1] [--set NAME=VALUE]... -- PROGRAM [ARG...]");
    }
    plan->command = argv + i + 1;
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t rollup_bytes(const char *rollup, const char *key) {
    const char *at = strstr(rollup, key);
    return at == NULL ? 0 : strtoull(at + strlen(key), NULL, 10) * 1024;
}

static void memory_read(pid_t child, struct memory *memory) {
    char path[64], rollup[4096];
    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)child);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? -1 : read(file, rollup, sizeof rollup - 1);
    if (got <= 0) {
        fail("cannot be read", path);
    }
    close(file);
    rollup[got] = '\0';
    *memory = (struct memory){
        .read = true,
        .rss = rollup_bytes(rollup, "\nRss:"),
        .pss = rollup_bytes(rollup, "\nPss:"),
        .private_dirty = rollup_bytes(rollup, "\nPrivate_Dirty:"),
        .private_clean = rollup_bytes(rollup, "\nPrivate_Clean:"),
        .shared_clean = rollup_bytes(rollup, "\nShared_Clean:"),
        .anonymous = rollup_bytes(rollup, "\nAnonymous:"),
    };
}

static pid_t child_start(const struct plan *plan) {
    pid_t child = fork();
    if (child == 0) {
        int null = open("/dev/null", O_RDWR);
        dup2(null, STDIN_FILENO);
        dup2(null, STDOUT_FILENO);
        if (plan->memory && ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) {
            fail("cannot be traced", plan->command[0]);
        }
        execve(plan->command[0], plan->command, plan->environment);
        fail("cannot be executed", plan->command[0]);
    }
    if (child < 0) {
        fail("cannot be forked", plan->command[0]);
    }
    return child;
}

/* Follows the traced child to its end, looking at its memory when it begins to exit. */
static int child_follow(pid_t child, struct memory *memory, struct rusage *usage) {
    int status;
    bool first = true;
    while (wait4(child, &status, 0, usage) == child && WIFSTOPPED(status)) {
        long passed_on = 0;
        if (first) {
            ptrace(PTRACE_SETOPTIONS, child, NULL, PTRACE_O_TRACEEXIT | PTRACE_O_EXITKILL);
            first = false;
        } else if (status >> 8 == (SIGTRAP | (PTRACE_EVENT_EXIT << 8))) {
            memory_read(child, memory);
        } else {
            passed_on = WSTOPSIG(status);
        }
        ptrace(PTRACE_CONT, child, NULL, passed_on);
    }
    return status;
}

static uint64_t timeval_ns(struct timeval time) {
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_usec * 1000u;
}

static void run_once(const struct plan *plan) {
    struct memory memory = {0};
    struct rusage usage;
    int status = 0;
    uint64_t start_ns = now_ns();
    pid_t child = child_start(plan);
    if (plan->memory) {
        status = child_follow(child, &memory, &usage);
    } else if (wait4(child, &status, 0, &usage) != child) {
        fail("was lost", plan->command[0]);
    }
    uint64_t wall_ns = now_ns() - start_ns;
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    printf("{\"status\":%d,\"wall_ns\":%" PRIu64 ",\"user_ns\":%" PRIu64 ",\"system_ns\":%" PRIu64
           ",\"minor_faults\":%ld,\"peak_rss_bytes\":%" PRIu64,
           code, wall_ns, timeval_ns(usage.ru_utime), timeval_ns(usage.ru_stime), usage.ru_minflt,
           (uint64_t)usage.ru_maxrss * 1024);
    if (memory.read) {
        printf(",\"rss_bytes\":%" PRIu64 ",\"pss_bytes\":%" PRIu64
               ",\"private_dirty_bytes\":%" PRIu64 ",\"private_clean_bytes\":%" PRIu64
               ",\"shared_clean_bytes\":%" PRIu64 ",\"anonymous_bytes\":%" PRIu64,
               memory.rss, memory.pss, memory.private_dirty, memory.private_clean,
               memory.shared_clean, memory.anonymous);
    }
    printf("}\n");
    fflush(stdout);
}

int main(int argc, char **argv) {
    struct plan plan = {.count = 1};
    plan_parse(&plan, argc, argv);
    for (unsigned long i = 0; i < plan.count; i++) {
        run_once(&plan);
    }
    return 0;
}
