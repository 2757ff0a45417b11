// A process whose system calls are refused from now on.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "api.h"

// Three calls by number; each fails with `error`. For good: a filter cannot be taken back.
static inline void refuse_calls(const unsigned calls[3], unsigned error) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[0], 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[1], 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[2], 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
    };
    struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
    require(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    require(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}
