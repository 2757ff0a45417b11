// Runs a program while system calls of one kind fail, chosen one by one: seccomp sends each to this
// process, which answers with an error or lets it pass. Calls of a library are told by the address of
// the instruction; calls of others (the loader, libc, thread stacks) pass.
#pragma once

#include "behaviour.h"

struct refusal {
    long numbers[2];       // the system calls counted together; -1: no second one
    bool by_anyone;        // not only by the library
    bool for_good;         // the marker does not end it
    unsigned long first;   // 1: the first such call
    unsigned long failed;  // how many in a row; ULONG_MAX: all from then on
    int error;
};

struct outcome {
    unsigned long seen;  // calls of that kind before the marker
    unsigned long hit;   // of them refused
    int status;
    char text[4000];  // stdout and stderr
};

// `command` runs with `library` preloaded, whose path must be resolved: it tells the library's code.
struct subject {
    char **command;
    const char *library;
};

void refuse_run(const struct subject *subject, const struct refusal *refusal,
                struct outcome *outcome);
