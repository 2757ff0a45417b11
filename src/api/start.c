// Beginning and end of the process, and fork: where the layers meet the loader.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/alloc.h"
#include "base/text.h"
#include "config/options.h"
#include "config/profile.h"
#include "control/inspect.h"
#include "control/leaks.h"
#include "control/learner.h"
#include "control/report.h"
#include "control/snapshot.h"
#include "control/stats.h"
#include "heap/guarded_report.h"
#include "heap/quarantine.h"
#include "os/os.h"
#include "thread/fork.h"
#include "thread/lifecycle.h"

// Where statistics and leaks go at exit: many programs close standard error before they end.
static int exit_descriptor = 2;

#if defined(__GLIBC__)
// What pthread_atfork is there, which is itself a piece of every library, at the far end of its code. The handle is
// that of the library whose unloading takes the handlers away: this one stays.
int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
                      void *handle);

static void at_fork(void (*prepare)(void), void (*parent)(void), void (*child)(void)) {
    __register_atfork(prepare, parent, child, NULL);
}
#else
static void at_fork(void (*prepare)(void), void (*parent)(void), void (*child)(void)) {
    pthread_atfork(prepare, parent, child);
}
#endif

// What is not asked for is not called: its code, and the empty string, lie where nothing else does that a start touches.
static bool is_reported(void) {
    return options_origin(OPTION_report) != OPTION_ORIGIN_DEFAULT;
}

static void after_fork_in_child(void) {
    fork_child();
    snapshot_fork_child();
    if (is_reported()) {
        report_fork_child();
    }
}

// malloc works before this runs (other libraries' constructors come first or later as the loader
// likes); here is what needs the C library ready.
__attribute__((constructor)) static void start(void) {
    learner_start();
    lifecycle_start();
    if (profile_in_force != NULL) {
        inspect_start();
    }
    // Attaches the main thread, so that fork and exit find its cache.
    lifecycle_attach();
    at_fork(fork_prepare, fork_parent, after_fork_in_child);
    if (options.guard_sample != 0 && guarded_start()) {
        guarded_catch_faults();
    }
    if (options.snapshot_signal != 0) {
        snapshot_start();
    }
    if (is_reported()) {
        report_start();
    }
    if (option_live(stats_at_exit) || option_live(leaks)) {
        exit_descriptor = os_duplicate(2);
    }
}

// Brings what the main thread's cache still holds to the bitmaps, where a double or invalid free
// that nothing noticed so far shows up.
static void verify_frees(void) {
    struct thread_cache *cache = thread_cache;
    if (!cache_is_real(cache)) {
        return;
    }
    cache_empty(cache);
    lock_acquire(&cache->heap.lock);
    heap_collect(&cache->heap);
    heap_end_quarantine(&cache->heap);
    lock_release(&cache->heap.lock);
}

void start_finish(void) {
    // Relaxed: exit handlers run in one thread; a second call finds it set. Pairs with nothing.
    static _Atomic(bool) finished;
    if (atomic_load_relaxed(&finished)) {
        return;
    }
    atomic_store_relaxed(&finished, true);
    // The books first, as the program left them.
    if (option_live(stats_at_exit)) {
        stats_print(exit_descriptor);
    }
    if (is_reported()) {
        report_finish();
    }
    if (option_live(exit_check)) {
        verify_frees();
    }
    if (option_live(check) != 0) {
        check_all();
    }
}

#if defined(__GLIBC__)
// A handler that is registered while handlers run comes next, and the destructors of all libraries
// are one handler of exit: what they free is free by then. Without a handle of its own it is not run
// with this library's destructors.
int __cxa_atexit(void (*function)(void *), void *argument, void *handle);

static void call(void *function) {
    ((void (*)(void))function)();
}

static void after_destructors(void (*function)(void)) {
    __cxa_atexit(call, (void *)function, NULL);
}

// exit() called by a handler goes on with what is left of itself, the flush of all streams without
// waiting for those that other threads have locked, and ends with the new status.
static void end_with(int status) {
    exit(status);
}
#else
static void after_destructors(void (*function)(void)) {
    function();
}

static void end_with(int status) {
    fflush(NULL);
    _exit(status);
}
#endif

static void report_leaks(void) {
    const struct leaks leaks = leaks_report(exit_descriptor);
    const int status = (int)option_live(leaks_exit_status);
    if (status != 0 && leaks.bytes > option_live(leaks_allowed_bytes)) {
        end_with(status);
    }
}

__attribute__((destructor)) static void finish(void) {
    start_finish();
    if (option_live(leaks)) {
        after_destructors(report_leaks);
    }
}
