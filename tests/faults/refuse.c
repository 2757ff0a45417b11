#include "refuse.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "marker.h"

#define RUN_SECONDS_MAX 300

union control {
    struct cmsghdr header;
    char room[CMSG_SPACE(sizeof(int))];
};

// A filter that asks about the calls of the plan and the marker's, for the process to be started.
static int install_filter(const struct refusal *refusal) {
    const long asked[] = {refusal->numbers[0], refusal->numbers[1], SYS_mprotect};
    enum { COUNT = sizeof asked / sizeof asked[0] };
    struct sock_filter filter[COUNT + 3];
    filter[0] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < COUNT; i++) {
        filter[i + 1] = (struct sock_filter)BPF_JUMP(
            BPF_JMP | BPF_JEQ | BPF_K, (unsigned int)asked[i], (unsigned char)(COUNT - i), 0);
    }
    filter[COUNT + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    filter[COUNT + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
    struct sock_fprog program = {COUNT + 3, filter};
    require(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
                        &program);
}

static struct msghdr message_of(struct iovec *part, union control *control) {
    return (struct msghdr){.msg_iov = part,
                           .msg_iovlen = 1,
                           .msg_control = control->room,
                           .msg_controllen = sizeof control->room};
}

static void send_descriptor(int channel, int fd) {
    char byte = 'x';
    struct iovec part = {&byte, 1};
    union control control = {0};
    struct msghdr message = message_of(&part, &control);
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
    union control control = {0};
    struct msghdr message = message_of(&part, &control);
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

// Where the library lies in the process, once it is mapped: all of it, since its code is in more than one segment
// (cmake/layout.ld.in). The loader maps the whole first and the segments over it, so the first look has both ends.
static void find_library(pid_t pid, const char *library, struct range *whole) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *maps = fopen(path, "re");
    if (maps == NULL) {
        return;
    }
    char line[600];
    while (fgets(line, sizeof line, maps) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *file = strchr(line, '/');
        if (file != NULL && strcmp(file, library) == 0) {
            char *end;
            const uint64_t from = strtoull(line, &end, 16);
            whole->from = whole->to == 0 ? from : whole->from;
            whole->to = strtoull(end + 1, NULL, 16);
        }
    }
    fclose(maps);
}

__attribute__((noreturn)) static void become_program(const struct subject *subject,
                                                     const struct refusal *refusal, int channel,
                                                     int output) {
    require(dup2(output, STDOUT_FILENO) >= 0 && dup2(output, STDERR_FILENO) >= 0);
    setenv("LD_PRELOAD", subject->library, 1);
    alarm(RUN_SECONDS_MAX);
    int listener = install_filter(refusal);
    require_that(listener >= 0, "seccomp: errno %d", errno);
    send_descriptor(channel, listener);
    close(listener);
    close(channel);
    execv(subject->command[0], subject->command);
    _exit(126);
}

struct watch {
    const struct subject *subject;
    const struct refusal *refusal;
    struct outcome *outcome;
    int listener;
    struct range library;
    bool over;
};

static bool is_meant(struct watch *watch, const struct seccomp_notif *request) {
    const struct refusal *refusal = watch->refusal;
    if (request->data.nr != refusal->numbers[0] && request->data.nr != refusal->numbers[1]) {
        return false;
    }
    if (refusal->by_anyone) {
        return true;
    }
    if (watch->library.to == 0) {
        find_library((pid_t)request->pid, watch->subject->library, &watch->library);
    }
    const uint64_t at = request->data.instruction_pointer;
    return at >= watch->library.from && at < watch->library.to;
}

static void answer(struct watch *watch) {
    struct seccomp_notif request;
    memset(&request, 0, sizeof request);
    if (ioctl(watch->listener, SECCOMP_IOCTL_NOTIF_RECV, &request) != 0) {
        return;
    }
    struct seccomp_notif_resp response = {.id = request.id,
                                          .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
    if (request.data.nr == SYS_mprotect && request.data.args[0] == FAULTS_MARKER) {
        watch->over = !watch->refusal->for_good;
    } else if (!watch->over && is_meant(watch, &request)) {
        const unsigned long number = ++watch->outcome->seen;
        if (number >= watch->refusal->first &&
            number - watch->refusal->first < watch->refusal->failed) {
            response.flags = 0;
            response.error = -watch->refusal->error;
            watch->outcome->hit++;
        }
    }
    // The process may have been killed meanwhile.
    (void)ioctl(watch->listener, SECCOMP_IOCTL_NOTIF_SEND, &response);
}

// Until the program has closed its output, or said too much.
static void answer_and_listen(struct watch *watch, int output) {
    struct outcome *outcome = watch->outcome;
    size_t used = 0;
    bool open_ended = true;
    while (open_ended) {
        struct pollfd waits[2] = {{watch->listener, POLLIN, 0}, {output, POLLIN, 0}};
        require(poll(waits, 2, -1) > 0);
        if ((waits[0].revents & POLLIN) != 0) {
            answer(watch);
        }
        if ((waits[1].revents & (POLLIN | POLLHUP)) != 0) {
            ssize_t got = read(output, outcome->text + used, sizeof outcome->text - 1 - used);
            used += got > 0 ? (size_t)got : 0;
            open_ended = got > 0 && used < sizeof outcome->text - 1;
        }
    }
}

void refuse_run(const struct subject *subject, const struct refusal *refusal,
                struct outcome *outcome) {
    memset(outcome, 0, sizeof *outcome);
    int channel[2];
    int output[2];
    require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel) == 0);
    require(pipe2(output, O_CLOEXEC) == 0);
    pid_t child = fork();
    require(child >= 0);
    if (child == 0) {
        become_program(subject, refusal, channel[1], output[1]);
    }
    close(channel[1]);
    close(output[1]);
    struct watch watch = {subject, refusal, outcome, receive_descriptor(channel[0]), {0, 0}, false};
    close(channel[0]);
    answer_and_listen(&watch, output[0]);
    close(output[0]);
    // Without a listener the calls would fail: answer to the end.
    struct pollfd wait = {watch.listener, POLLIN, 0};
    while (poll(&wait, 1, -1) >= 0 && (wait.revents & POLLIN) != 0) {
        answer(&watch);
    }
    close(watch.listener);
    require(waitpid(child, &outcome->status, 0) == child);
}
