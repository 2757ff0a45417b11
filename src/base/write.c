// write.h on Linux.
#include "base/write.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/system_call.h"

// The kernel's sets of signals.
#define SIGNAL_SET_BYTES 8

// Who reads at the other end of a descriptor that does not block is waited for, but not for ever. No signal cuts the wait short.
#define FULL_SECONDS_MAX 1
// Waits that end with nothing written.
#define FULL_WAITS_MAX 10

// Nobody read for so long: what follows, a report has a hundred lines, is not waited for until something was written.
// Relaxed: a wait more or less; pairs with nothing.
static _Atomic(bool) nobody_reads;

static bool takes_more(int descriptor) {
    if (atomic_load_relaxed(&nobody_reads)) {
        return false;
    }
    struct pollfd wanted = {.fd = descriptor, .events = POLLOUT};
    const uint64_t all_signals = UINT64_MAX;
    long most[2] = {FULL_SECONDS_MAX, 0};  // a struct timespec
    const bool takes = SYSTEM_CALL(SYS_ppoll, &wanted, 1, most, &all_signals, SIGNAL_SET_BYTES) > 0;
    atomic_store_relaxed(&nobody_reads, !takes);
    return takes;
}

static int write_all(int descriptor, const char *rest, size_t bytes) {
    int error = 0;
    unsigned waits = 0;
    while (bytes > 0 && error == 0) {
        const long written = SYSTEM_CALL(SYS_write, descriptor, rest, bytes);
        if (written > 0) {
            rest += written;
            bytes -= (size_t)written;
            waits = 0;
            atomic_store_relaxed(&nobody_reads, false);
        } else if (written == 0) {
            error = ENOSPC;  // no file system says so for a write of more than nothing
        } else if (errno == EAGAIN) {
            error = waits++ < FULL_WAITS_MAX && takes_more(descriptor) ? 0 : EAGAIN;
        } else if (errno != EINTR) {
            error = errno;
        }
    }
    return error;
}

static uint64_t signal_set(int number) {
    return UINT64_C(1) << (number - 1);
}

int write_quietly(int descriptor, const void *start, size_t bytes) {
    const int saved_errno = errno;
    const uint64_t unwanted = signal_set(SIGPIPE) | signal_set(SIGXFSZ);
    uint64_t mask = 0, pending = 0;
    SYSTEM_CALL(SYS_rt_sigprocmask, SIG_BLOCK, &unwanted, &mask, SIGNAL_SET_BYTES);
    if ((mask & unwanted) != 0) {
        // Only one that was blocked can be pending.
        SYSTEM_CALL(SYS_rt_sigpending, &pending, SIGNAL_SET_BYTES);
    }
    const int error = write_all(descriptor, start, bytes);
    if (error == EPIPE || error == EFBIG) {
        const uint64_t raised = unwanted & ~pending;
        const long at_once[2] = {0, 0};  // a struct timespec
        SYSTEM_CALL(SYS_rt_sigtimedwait, &raised, NULL, at_once, SIGNAL_SET_BYTES);
    }
    SYSTEM_CALL(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, SIGNAL_SET_BYTES);
    errno = saved_errno;
    return error;
}
