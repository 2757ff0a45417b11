// Beginning and end of the process, and fork: where the layers meet the loader.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/alloc.h"
#include "base/text.h"
#include "config/options.h"
#include "control/leaks.h"
#include "control/report.h"
#include "control/snapshot.h"
#include "control/stats.h"
#include "heap/guarded_report.h"
#include "os/os.h"
#include "thread/fork.h"
#include "thread/lifecycle.h"
#include "thread/remote.h"

// Where statistics and leaks go at exit: many programs close standard error before they end.
static int exit_descriptor = 2;

static void after_fork_in_child(void) {
    fork_child();
    snapshot_fork_child();
    report_fork_child();
}

// malloc works before this runs (other libraries' constructors come first or later as the loader
// likes); here is what needs the C library ready.
__attribute__((constructor)) static void start(void) {
    lifecycle_start();
    // Attaches the main thread, so that fork and exit find its cache.
    lifecycle_attach();
    pthread_atfork(fork_prepare, fork_parent, after_fork_in_child);
    if (guarded_start()) {
        guarded_catch_faults();
    }
    snapshot_start();
    report_start();
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
    remote_publish(cache);
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
    report_finish();
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
