// Faults: memory accesses of the program that the processor refuses (SIGSEGV, SIGBUS).
#pragma once

#include <signal.h>

#include "base/base.h"

enum os_access { OS_ACCESS_UNKNOWN, OS_ACCESS_READ, OS_ACCESS_WRITE, OS_ACCESS_EXECUTE };

struct os_fault {
    uintptr_t address;
    enum os_access access;
    const void *context;  // for os_stack_capture_interrupted()
};

// From now on `handler` sees each fault first, in a signal handler, on the thread's alternative stack
// when it has one. True: the cause is gone, and the instruction runs again. False: what the program had
// installed before happens, the default included. What the program installs afterwards replaces this.
// Once per process, before it has many threads. False when the system refuses.
bool os_fault_catch(bool (*handler)(const struct os_fault *fault));

// Sends a signal that was raised to the calling thread once more, as what it was. Where it is blocked, as in its own handler, it comes
// later.
void os_signal_again(int signal, const siginfo_t *info);
