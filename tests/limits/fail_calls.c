// Makes system calls of the allocator fail, one at a time: for each kind of call and each n, the
// program runs with the n-th such call failing, until the program makes no n-th call. Calls of
// others (the loader, libc, thread stacks) pass: the kernel's notification has the address of the
// instruction, which must lie in the library under test.
//
// Every run must end well: requests are served or refused with ENOMEM, few of them for one failing
// call, and nothing is refused once calls succeed again.
#include "behaviour.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

struct call {
    const char *name;
    int number;
};

static const struct call calls[] = {
    {"mmap", SYS_mmap},       {"munmap", SYS_munmap}, {"mprotect", SYS_mprotect},
    {"madvise", SYS_madvise}, {"mremap", SYS_mremap},
};
enum { CALL_COUNT = sizeof calls / sizeof calls[0] };
// Never counted one by one, but refused for good in a last run.
static const struct call refusable[] = {
    {"madvise", SYS_madvise}, {"mremap", SYS_mremap},         {"getrandom", SYS_getrandom},
    {"prctl", SYS_prctl},     {"membarrier", SYS_membarrier},
};

struct plan {
    int number;            // the call that fails
    unsigned long first;   // 1: the first such call
    unsigned long failed;  // how many in a row; ULONG_MAX: all
    int error;
};

struct outcome {
    unsigned long seen;  // calls of that kind by the library
    unsigned long hit;
    int status;
    bool reached_main;
    unsigned int refused;
    char text[4000];  // stdout and stderr
};

static const char *library;
static char **command;

// Length of a filter that asks about all calls named here, built for the process to be started.
static int install_filter(void) {
    struct sock_filter filter[2 * (CALL_COUNT + 5) + 3];
    unsigned short used = 0;
    int numbers[CALL_COUNT + 5];
    unsigned short count = 0;
    for (int i = 0; i < CALL_COUNT; i++) {
        numbers[count++] = calls[i].number;
    }
    for (int i = 2; i < 5; i++) {
        numbers[count++] = refusable[i].number;
    }
    filter[used++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (unsigned short i = 0; i < count; i++) {
        filter[used++] = (struct sock_filter)BPF_JUMP(
            BPF_JMP | BPF_JEQ | BPF_K, (unsigned int)numbers[i], (unsigned char)(count - i), 0);
    }
    filter[used++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    filter[used++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
    struct sock_fprog program = {used, filter};
    require(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
                        &program);
}

static void send_descriptor(int channel, int fd) {
    char byte = 'x';
    struct iovec part = {&byte, 1};
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    memset(&control, 0, sizeof control);
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.room,
                             .msg_controllen = sizeof control.room};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    require(sendmsg(channel, &message, 0) == 1);
}

static int receive_descriptor(int channel) {
    char byte;
    struct iovec part = {&byte, 1};
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.room,
                             .msg_controllen = sizeof control.room};
    require(recvmsg(channel, &message, 0) == 1);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    require_that(header != NULL, "seccomp gave no listener: it is needed for this test");
    int fd;
    memcpy(&fd, CMSG_DATA(header), sizeof fd);
    return fd;
}

struct range {
    uint64_t from;
    uint64_t to;
};

// Where the library's code lies in the process, once it is mapped.
static bool find_library(pid_t pid, struct range *code) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *maps = fopen(path, "re");
    if (maps == NULL) {
        return false;
    }
    char line[600];
    bool found = false;
    while (!found && fgets(line, sizeof line, maps) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *file = strchr(line, '/');
        if (file != NULL && strcmp(file, library) == 0 && strstr(line, " r-xp ") != NULL) {
            char *end;
            code->from = strtoull(line, &end, 16);
            code->to = strtoull(end + 1, NULL, 16);
            found = true;
        }
    }
    fclose(maps);
    return found;
}

__attribute__((noreturn)) static void become_program(int channel, int output) {
    require(dup2(output, STDOUT_FILENO) >= 0 && dup2(output, STDERR_FILENO) >= 0);
    const char *preload = getenv("FAIL_CALLS_PRELOAD");
    if (preload != NULL) {
        setenv("LD_PRELOAD", preload, 1);
    }
    alarm(30);
    int listener = install_filter();
    require_that(listener >= 0, "seccomp: errno %d", errno);
    send_descriptor(channel, listener);
    close(listener);
    close(channel);
    execv(command[0], command);
    _exit(126);
}

static void answer(int listener, const struct plan *plan, struct outcome *outcome,
                   struct range *code, bool *over) {
    static struct seccomp_notif request;
    static struct seccomp_notif_resp response;
    memset(&request, 0, sizeof request);
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &request) != 0) {
        return;
    }
    memset(&response, 0, sizeof response);
    response.id = request.id;
    response.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    if (request.data.nr == SYS_mprotect && request.data.args[0] == 0x68616b0000) {
        *over = true;
    } else if (request.data.nr == plan->number && !*over) {
        if (code->to == 0) {
            find_library((pid_t)request.pid, code);
        }
        uint64_t at = request.data.instruction_pointer;
        if (at >= code->from && at < code->to) {
            outcome->seen++;
            if (outcome->seen >= plan->first && outcome->seen - plan->first < plan->failed) {
                response.flags = 0;
                response.error = -plan->error;
                outcome->hit++;
            }
        }
    }
    // The process may have been killed meanwhile.
    (void)ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &response);
}

static void run(const struct plan *plan, struct outcome *outcome) {
    memset(outcome, 0, sizeof *outcome);
    int channel[2];
    int output[2];
    require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel) == 0);
    require(pipe2(output, O_CLOEXEC) == 0);
    pid_t child = fork();
    require(child >= 0);
    if (child == 0) {
        become_program(channel[1], output[1]);
    }
    close(channel[1]);
    close(output[1]);
    int listener = receive_descriptor(channel[0]);
    close(channel[0]);
    struct range code = {0, 0};
    bool over = false;
    size_t used = 0;
    bool open_ended = true;
    while (open_ended) {
        struct pollfd waits[2] = {{listener, POLLIN, 0}, {output[0], POLLIN, 0}};
        require(poll(waits, 2, -1) > 0);
        if ((waits[0].revents & POLLIN) != 0) {
            answer(listener, plan, outcome, &code, &over);
        }
        if ((waits[1].revents & (POLLIN | POLLHUP)) != 0) {
            ssize_t got = read(output[0], outcome->text + used, sizeof outcome->text - 1 - used);
            used += got > 0 ? (size_t)got : 0;
            open_ended = got > 0 && used < sizeof outcome->text - 1;
        }
    }
    close(output[0]);
    // No more notifications are needed: without a listener the calls would fail, so drain to the
    // end.
    for (;;) {
        struct pollfd wait = {listener, POLLIN, 0};
        if (poll(&wait, 1, -1) < 0 || (wait.revents & POLLIN) == 0) {
            break;
        }
        answer(listener, plan, outcome, &code, &over);
    }
    close(listener);
    require(waitpid(child, &outcome->status, 0) == child);
    outcome->reached_main = strstr(outcome->text, "main\n") != NULL;
    const char *refused = strstr(outcome->text, "refused ");
    outcome->refused = refused != NULL ? (unsigned int)strtoul(refused + 8, NULL, 10) : 0;
}

// Whether the outcome is as it must be; says so when not.
static bool judge(const struct call *call, const struct plan *plan, const struct outcome *outcome,
                  unsigned int refused_max) {
    const char *wrong = NULL;
    if (WIFSIGNALED(outcome->status)) {
        wrong = "killed by a signal";
    } else if (!outcome->reached_main) {
        // The loader or libc gave up before main: in order, when it said so.
        wrong = outcome->hit > 0 && WEXITSTATUS(outcome->status) != 0 ? NULL : "did not reach main";
    } else if (WEXITSTATUS(outcome->status) != 0) {
        wrong = "failed";
    } else if (outcome->refused > refused_max) {
        wrong = "too many requests refused";
    }
    if (wrong != NULL) {
        behaviour_say("%s from call %lu, %lu in a row, errno %d: %s (status %#x, refused %u)\n%s",
                      call->name, plan->first, plan->failed, plan->error, wrong,
                      (unsigned int)outcome->status, outcome->refused, outcome->text);
    }
    return wrong == NULL;
}

static unsigned long runs;
static unsigned long failures;

static void each_in_turn(const struct call *call, unsigned long in_a_row, int error) {
    struct outcome outcome;
    unsigned long n = 0;
    unsigned int refused_most = 0;
    do {
        n++;
        struct plan plan = {call->number, n, in_a_row, error};
        run(&plan, &outcome);
        runs++;
        // A refused request answers one failing call; its second try may fail on the same one.
        failures += !judge(call, &plan, &outcome, (unsigned int)(2 * in_a_row));
        refused_most = outcome.refused > refused_most ? outcome.refused : refused_most;
    } while (outcome.hit > 0 && n < 3000 && failures < 10);
    behaviour_say("%s, errno %d, %lu in a row: %lu calls failed in turn, at most %u refusals",
                  call->name, error, in_a_row, n - 1, refused_most);
}

int main(int count, char **values) {
    require_that(count >= 4, "usage: fail_calls once|burst|always LIBRARY PROGRAM [CALL...]");
    signal(SIGPIPE, SIG_IGN);
    static char resolved[4096];
    require_that(realpath(values[2], resolved) != NULL, "%s: errno %d", values[2], errno);
    library = resolved;
    command = &values[3];
    if (strcmp(values[1], "always") == 0) {
        // Sandboxes forbid these; all of them are wishes, and everything is served without.
        for (size_t i = 0; i < sizeof refusable / sizeof refusable[0]; i++) {
            struct outcome outcome;
            struct plan plan = {refusable[i].number, 1, (unsigned long)-1, EPERM};
            run(&plan, &outcome);
            runs++;
            bool good = judge(&refusable[i], &plan, &outcome, 0) && outcome.reached_main;
            failures += !good;
            behaviour_say("%s: %lu of %lu calls refused", refusable[i].name, outcome.hit,
                          outcome.seen);
        }
    } else {
        unsigned long in_a_row = strcmp(values[1], "burst") == 0 ? 5 : 1;
        unsigned long hits = 0;
        for (int i = 0; i < CALL_COUNT; i++) {
            unsigned long before = runs;
            each_in_turn(&calls[i], in_a_row, ENOMEM);
            hits += runs - before - 1;
            if (calls[i].number == SYS_mmap && in_a_row == 1) {
                each_in_turn(&calls[i], in_a_row, EAGAIN);
            }
        }
        require_that(hits > 0, "no call of %s was seen: nothing was tested", library);
    }
    behaviour_say("%lu runs, %lu failures", runs, failures);
    return failures == 0 ? 0 : 1;
}
