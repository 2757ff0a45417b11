#include "os/fault.h"

#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/system_call.h"

static const int signals[] = {SIGSEGV, SIGBUS};

// What was installed before, written before the handler is.
static struct sigaction earlier[ARRAY_COUNT(signals)];
static bool (*see_fault)(const struct os_fault *fault);

static enum os_access access_of(const ucontext_t *context, uintptr_t address) {
#if defined(__x86_64__)
    // The page fault's error code: bit 4 tells that an instruction was to be read, which not all machines say, bit 1 a write.
    const uint64_t error = (uint64_t)context->uc_mcontext.gregs[REG_ERR];
    if ((error & 16) != 0 || (uintptr_t)context->uc_mcontext.gregs[REG_RIP] == address) {
        return OS_ACCESS_EXECUTE;
    }
    return (error & 2) != 0 ? OS_ACCESS_WRITE : OS_ACCESS_READ;
#else
    return (uintptr_t)context->uc_mcontext.pc == address ? OS_ACCESS_EXECUTE : OS_ACCESS_UNKNOWN;
#endif
}

static void set_default(int signal) {
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigemptyset(&action.sa_mask);
    sigaction(signal, &action, NULL);
}

static void signal_thread(int signal) {
    SYSTEM_CALL(SYS_tgkill, SYSTEM_CALL(SYS_getpid), SYSTEM_CALL(SYS_gettid), signal);
}

// A process may tell itself what only the system may tell others. Emulators and filters know less.
void os_signal_again(int signal, const siginfo_t *info) {
    if (SYSTEM_CALL(SYS_rt_tgsigqueueinfo, SYSTEM_CALL(SYS_getpid), SYSTEM_CALL(SYS_gettid), signal,
                    info) != 0) {
        signal_thread(signal);
    }
}

// Ends as without this handler: a fault happens again when the instruction does, and a signal that was
// sent is sent again, to be delivered when this handler returns.
static void do_default(int signal, bool is_fault) {
    set_default(signal);
    if (!is_fault) {
        signal_thread(signal);
    }
}

static bool is_ignored(const struct sigaction *action) {
    return (action->sa_flags & SA_SIGINFO) == 0 && action->sa_handler == SIG_IGN;
}

// Also positive, and without a fault that comes again: memory found damaged that somebody will need, and a tag that some access before
// did not match. Linux lets a program ignore them.
#define CODE_OF_A_TAG 8  // SEGV_MTEAERR

static bool is_fault_that_comes_again(int signal, const siginfo_t *info) {
    return info->si_code > 0 && !(signal == SIGBUS && info->si_code == BUS_MCEERR_AO) &&
           !(signal == SIGSEGV && info->si_code == CODE_OF_A_TAG);
}

static void pass_on(struct sigaction *action, int signal, siginfo_t *info, void *context) {
    const bool is_fault = is_fault_that_comes_again(signal, info);
    const bool has_handler = (action->sa_flags & SA_SIGINFO) != 0 || action->sa_handler != SIG_DFL;
    if (!has_handler || is_ignored(action)) {
        // The kernel lets nobody ignore a fault.
        if (is_fault || !is_ignored(action)) {
            do_default(signal, is_fault);
        }
        return;
    }
    const struct sigaction now = *action;
    if ((now.sa_flags & (int)SA_RESETHAND) != 0) {
        action->sa_flags &= ~SA_SIGINFO;
        action->sa_handler = SIG_DFL;
    }
    if ((now.sa_flags & SA_SIGINFO) != 0) {
        now.sa_sigaction(signal, info, context);
    } else {
        now.sa_handler(signal);
    }
}

static void on_fault(int signal, siginfo_t *info, void *context) {
    // What was sent by a process has a code that is not positive, and no address.
    if (info->si_code > 0) {
        const uintptr_t address = (uintptr_t)info->si_addr;
        const struct os_fault fault = {address, access_of(context, address), context};
        if (see_fault(&fault)) {
            return;
        }
    }
    pass_on(&earlier[signal == SIGSEGV ? 0 : 1], signal, info, context);
}

// A call of the system that a signal interrupts, which somebody sent, goes on as it would without this handler.
static int flags_of(const struct sigaction *before) {
    return is_ignored(before) ? (int)SA_RESTART : before->sa_flags & (int)(SA_NODEFER | SA_RESTART);
}

bool os_fault_catch(bool (*handler)(const struct os_fault *fault)) {
    see_fault = handler;
    for (size_t i = 0; i < ARRAY_COUNT(signals); i++) {
        if (sigaction(signals[i], NULL, &earlier[i]) != 0) {
            return false;
        }
        struct sigaction action = {.sa_sigaction = on_fault};
        // The earlier handler runs within this one, under its own mask.
        action.sa_mask = earlier[i].sa_mask;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK | flags_of(&earlier[i]);
        if (sigaction(signals[i], &action, NULL) != 0) {
            return false;
        }
    }
    return true;
}
