// Starts a program in surroundings that few programs have:
//   around [as=MIB] [data=MIB] [stack=KIB] [memlock=KIB] [thp] [norandom] [compat] [unshare]
//          [refuse=CALL:ERRNO]... [flaky=CALL:N:SEED]... LIBRARY PROGRAM ARGUMENT...
// `refuse` forbids a system call to everybody, for good. `flaky` lets about one in N of the library's own calls
// fail with ENOMEM, by a seed; those of libc and of the loader pass. Ends as the program ended.
#include "behaviour.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

enum { RULES_MAX = 8 };

struct rule {
    long call;
    int error;
    unsigned long one_in;  // 0: refused for good
    uint64_t seed;
};

static struct rule rules[RULES_MAX];
static unsigned int rule_count;
static bool any_flaky;
static unsigned long failed;

static long call_of(const char *name) {
    static const struct {
        const char *name;
        long number;
    } calls[] = {{"mmap", SYS_mmap},
                 {"munmap", SYS_munmap},
                 {"madvise", SYS_madvise},
                 {"mremap", SYS_mremap},
                 {"mprotect", SYS_mprotect},
                 {"mincore", SYS_mincore},
                 {"membarrier", SYS_membarrier},
                 {"process_madvise", SYS_process_madvise},
                 {"rseq", SYS_rseq},
                 {"prctl", SYS_prctl},
                 {"getrandom", SYS_getrandom},
                 {"sched_getaffinity", SYS_sched_getaffinity},
                 {"process_vm_readv", SYS_process_vm_readv}};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        if (strcmp(calls[i].name, name) == 0) {
            return calls[i].number;
        }
    }
    behaviour_fail(__FILE__, __LINE__, "no call is known as %s", name);
}

static void add_rule(const char *text, bool flaky) {
    char name[32];
    char first[32];
    unsigned long long seed = 0;
    require(sscanf(text, "%31[^:]:%31[^:]:%llu", name, first, &seed) >= 2);
    require(rule_count < RULES_MAX);
    struct rule *rule = &rules[rule_count++];
    *rule = (struct rule){call_of(name), ENOMEM, 0, seed};
    if (flaky) {
        rule->one_in = strtoul(first, NULL, 10);
        require(rule->one_in > 0);
        any_flaky = true;
    } else {
        rule->error = strcmp(first, "ENOSYS") == 0 ? ENOSYS : EPERM;
    }
}

static void limit(__rlimit_resource_t which, const char *text, size_t unit) {
    const rlim_t bytes = strtoul(text, NULL, 10) * unit;
    require(setrlimit(which, &(struct rlimit){bytes, bytes}) == 0);
}

static bool surround(const char *text) {
    const char *value = strchr(text, '=');
    const size_t length = value != NULL ? (size_t)(value++ - text) : strlen(text);
#define IS(name) (length == sizeof(name) - 1 && memcmp(text, name, length) == 0)
    if (IS("as")) {
        limit(RLIMIT_AS, value, MIB);
    } else if (IS("data")) {
        limit(RLIMIT_DATA, value, MIB);
    } else if (IS("stack")) {
        limit(RLIMIT_STACK, value, KIB);
    } else if (IS("memlock")) {
        limit(RLIMIT_MEMLOCK, value, KIB);
    } else if (IS("thp")) {
        require(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0);
    } else if (IS("norandom")) {
        require(personality((unsigned long)personality(0xffffffff) | ADDR_NO_RANDOMIZE) != -1);
    } else if (IS("compat")) {
        require(personality((unsigned long)personality(0xffffffff) | ADDR_COMPAT_LAYOUT) != -1);
    } else if (IS("unshare")) {
        (void)unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWIPC);  // not allowed everywhere
    } else if (IS("refuse")) {
        add_rule(value, false);
    } else if (IS("flaky")) {
        add_rule(value, true);
    } else {
        return false;
    }
#undef IS
    return true;
}

// -1 without a rule that asks. The filters of rules that refuse are the same one.
static int install_filter(void) {
    if (rule_count == 0) {
        return -1;
    }
    struct sock_filter filter[2 + 2 * RULES_MAX] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    unsigned short used = 1;
    for (unsigned int i = 0; i < rule_count; i++) {
        const unsigned int answer = rules[i].one_in != 0
                                        ? SECCOMP_RET_USER_NOTIF
                                        : SECCOMP_RET_ERRNO | (unsigned int)rules[i].error;
        filter[used++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
                                                      (unsigned int)rules[i].call, 0, 1);
        filter[used++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, answer);
    }
    filter[used++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {used, filter};
    require(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    const long listener = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                                  any_flaky ? SECCOMP_FILTER_FLAG_NEW_LISTENER : 0, &program);
    require_that(listener >= 0, "seccomp: errno %d", errno);
    return any_flaky ? (int)listener : -1;
}

static bool is_in_library(pid_t pid, uint64_t at, const char *library) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *maps = fopen(path, "re");
    char line[600];
    bool found = false;
    while (maps != NULL && !found && fgets(line, sizeof line, maps) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        const char *file = strchr(line, '/');
        char *end;
        const uint64_t from = strtoull(line, &end, 16);
        found = file != NULL && strcmp(file, library) == 0 && at >= from &&
                at < strtoull(end + 1, NULL, 16);
    }
    if (maps != NULL) {
        fclose(maps);
    }
    return found;
}

static int answer_to(const struct seccomp_notif *request, const char *library) {
    for (unsigned int i = 0; i < rule_count; i++) {
        struct rule *rule = &rules[i];
        if (rule->one_in != 0 && rule->call == request->data.nr &&
            random_below(&rule->seed, rule->one_in) == 0 &&
            is_in_library((pid_t)request->pid, request->data.instruction_pointer, library)) {
            failed++;
            return rule->error;
        }
    }
    return 0;
}

// Until no process is left under the filter: without a listener its calls would fail.
static void answer_all(int listener, const char *library) {
    for (;;) {
        struct pollfd wait = {listener, POLLIN, 0};
        if (poll(&wait, 1, -1) < 0 || (wait.revents & POLLIN) == 0) {
            if (wait.revents != 0) {
                return;
            }
            continue;
        }
        struct seccomp_notif request;
        memset(&request, 0, sizeof request);
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &request) != 0) {
            continue;
        }
        const int error = answer_to(&request, library);
        struct seccomp_notif_resp response = {
            .id = request.id,
            .error = -error,
            .flags = error == 0 ? SECCOMP_USER_NOTIF_FLAG_CONTINUE : 0,
        };
        (void)ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &response);  // killed meanwhile
    }
}

__attribute__((noreturn)) static void become(char **command) {
    if (strcmp(command[0], "-") != 0) {
        require(setenv("LD_PRELOAD", command[0], 1) == 0);
    }
    execv(command[1], command + 1);
    behaviour_fail(__FILE__, __LINE__, "%s: errno %d", command[1], errno);
}

int main(int count, char **values) {
    require(setvbuf(stdout, NULL, _IOLBF, 0) == 0);
    int at = 1;
    while (at < count && surround(values[at])) {
        at++;
    }
    require(at + 1 < count);
    if (!any_flaky) {
        install_filter();
        become(values + at);
    }
    // The one who asks is the child that shares this process's descriptors until it becomes the program.
    int ready[2];
    require(pipe2(ready, O_CLOEXEC) == 0);
    const pid_t child = (pid_t)syscall(SYS_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, NULL);
    require(child >= 0);
    if (child == 0) {
        require(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
        const int listener = install_filter();
        require(write(ready[1], &listener, sizeof listener) == sizeof listener);
        require(unshare(CLONE_FILES) == 0);
        close(listener);
        become(values + at);
    }
    int listener;
    require(read(ready[0], &listener, sizeof listener) == sizeof listener);
    printf("around: started %d\n", (int)child);
    answer_all(listener, values[at]);
    printf("around: %lu calls failed\n", failed);
    int status;
    require(waitpid(child, &status, 0) == child);
    if (WIFSIGNALED(status)) {
        signal(WTERMSIG(status), SIG_DFL);
        raise(WTERMSIG(status));
    }
    return WEXITSTATUS(status);
}
