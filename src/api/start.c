// Beginning and end of the process, and fork: where the layers meet the loader.
#include "api/start.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/atfork.h"
#include "api/exit_file.h"
#include "config/options.h"
#include "config/profile.h"
#include "control/check.h"
#include "control/inspect.h"
#include "control/leaks.h"
#include "control/learner.h"
#include "control/report.h"
#include "control/snapshot.h"
#include "control/stats.h"
#include "heap/guarded.h"
#include "heap/guarded_report.h"
#include "heap/huge_table.h"
#include "heap/quarantine.h"
#include "space/arena_pages.h"
#include "space/metadata.h"
#include "thread/fork.h"
#include "thread/lifecycle.h"

// What is not asked for is not called: its code, and the empty string, lie where nothing else does that a start touches.
static bool is_reported(void) {
    return options_origin(OPTION_report) != OPTION_ORIGIN_DEFAULT;
}

static void after_fork_in_child(void) {
    const bool had_threads = fork_child();
    snapshot_fork_child();
    exit_file_fork_child();
    if (is_reported()) {
        report_fork_child(had_threads);
    }
}

#if defined(__GLIBC__)
static void register_handlers(void) {
    __typeof__(__register_atfork) *const at_fork =
        hakmem_atfork_next != NULL ? hakmem_atfork_next() : __register_atfork;
    if (at_fork != NULL) {
        at_fork(fork_prepare, fork_parent, after_fork_in_child, NULL);
    }
}

// Whether the handlers may wait for the first cache. A process that has not allocated has one thread, because the C
// library allocates for a second one, and nothing that its fork could find half done. Not so when another library may
// register its handlers unseen.
static bool may_forks_wait(void) {
    return hakmem_atfork_next != NULL;
}
#else
static void register_handlers(void) {
    pthread_atfork(fork_prepare, fork_parent, after_fork_in_child);
}

// The C library maps the memory of threads itself.
static bool may_forks_wait(void) {
    return false;
}
#endif

void start_watch_forks(void) {
    // Relaxed: one call registers, the first. Pairs with nothing.
    static _Atomic(bool) watched;
    if (!atomic_load_relaxed(&watched) && !atomic_exchange_relaxed(&watched, true)) {
        register_handlers();
    }
}

// Constructors of the program's libraries may start threads and fork before this library's own has come. The C library has
// started when there is an environment: before that, nothing can be registered. The program may take it away.
// Relaxed: set while that is there. Pairs with nothing.
static _Atomic(bool) has_started;

void lifecycle_attached(void) {
    if (atomic_load_relaxed(&has_started) || environ != NULL) {
        start_watch_forks();
    }
}

// What only an option asks for.
static void start_what_is_asked_for(void) {
    if (profile_in_force != NULL) {
        inspect_start();
    }
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
        exit_file_keep();
    }
}

// malloc works before this runs (other libraries' constructors come first or later as the loader
// likes); here is what needs the C library ready. In a program that has the archive in itself, before its own
// constructors, which may register handlers of fork.
__attribute__((constructor(101))) static void start(void) {
    learner_start();
    const bool has_options = lifecycle_start_if_asked();
    // Reports and snapshots look at the process from its start.
    atomic_store_relaxed(&has_started, true);
    if (has_options || !may_forks_wait() || lifecycle_has_caches()) {
        start_watch_forks();
    }
    if (has_options) {
        start_what_is_asked_for();
    }
}

// Statistics, the reports and the checks look at sampled blocks too, whose lock lies where the start or end of a process without any never
// comes.
static bool looks_at_the_end(void) {
    return option_live(stats_at_exit) || is_reported() || option_live(check) != 0 ||
           option_live(leaks);
}

// Whether a handler of a signal that interrupted malloc or free ends the process: what they change is half done, and locked by this
// thread.
static bool malloc_is_interrupted(void) {
    bool is_interrupted =
        thread_cache->entered || lock_may_be_mine(&huge_table_state.lock) ||
        lock_may_be_mine(&registry_state.lock) || lock_may_be_mine(&late_heap()->lock) ||
        lock_may_be_mine(&arena_state.lock) || lock_may_be_mine(&metadata_state.lock) ||
        ((looks_at_the_end() || guarded_is_on()) && lock_may_be_mine(&guarded_pool_state.lock));
    for (const struct thread_cache *cache = lifecycle_caches(); cache != NULL;
         cache = cache->next_all) {
        is_interrupted = is_interrupted || lock_may_be_mine(&cache->heap.lock);
    }
    return is_interrupted;
}

// Brings what the main thread's cache still holds, and what ended threads left in theirs, to the bitmaps, where a double or
// invalid free that nothing noticed so far shows up.
static void verify_frees(void) {
    lifecycle_empty_kept();
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

// What was written into blocks that other threads freed shows up when their quarantines end; not of a heap that one is busy in.
static void end_quarantines(void) {
    for (struct thread_cache *cache = lifecycle_caches(); cache != NULL; cache = cache->next_all) {
        if (lock_try_acquire(&cache->heap.lock)) {
            heap_end_quarantine(&cache->heap);
            lock_release(&cache->heap.lock);
        }
    }
}

void start_finish(void) {
    // Relaxed: exit handlers run in one thread; a second call finds it set. Pairs with nothing.
    static _Atomic(bool) finished;
    if (atomic_load_relaxed(&finished)) {
        return;
    }
    atomic_store_relaxed(&finished, true);
    if (malloc_is_interrupted()) {
        return;
    }
    // The books first, as the program left them.
    if (option_live(stats_at_exit)) {
        stats_print(exit_file_output());
    }
    if (is_reported()) {
        report_finish();
    }
    if (option_live(exit_check)) {
        verify_frees();
        if (options.quarantine_blocks != 0) {
            end_quarantines();
        }
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
    const struct leaks leaks = leaks_report(exit_file_output());
    const int status = (int)option_live(leaks_exit_status);
    if (status != 0 && leaks.bytes > option_live(leaks_allowed_bytes)) {
        end_with(status);
    }
}

__attribute__((destructor)) static void finish(void) {
    start_finish();
    if (option_live(leaks) && !malloc_is_interrupted()) {
        after_destructors(report_leaks);
    }
}
