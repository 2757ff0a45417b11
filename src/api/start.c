// Beginning and end of the process, and fork: where the layers meet the loader.
#include <pthread.h>

#include "api/alloc.h"
#include "base/text.h"
#include "config/options.h"
#include "control/report.h"
#include "control/stats.h"
#include "os/os.h"
#include "thread/fork.h"
#include "thread/lifecycle.h"

// Where statistics go at exit: many programs close standard error before they end.
static int stats_descriptor = 2;

static void after_fork_in_child(void) {
    fork_child();
    report_fork_child();
}

// malloc works before this runs (other libraries' constructors come first or later as the loader
// likes); here is what needs the C library ready.
__attribute__((constructor)) static void start(void) {
    lifecycle_start();
    // Attaches the main thread, so that fork and exit find its cache.
    lifecycle_attach();
    pthread_atfork(fork_prepare, fork_parent, after_fork_in_child);
    report_start();
    if (option_live(stats_at_exit)) {
        stats_descriptor = os_duplicate(2);
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
        stats_print(stats_descriptor);
    }
    report_finish();
    if (option_live(exit_check)) {
        verify_frees();
    }
    if (option_live(check) != 0) {
        check_all();
    }
}

__attribute__((destructor)) static void finish(void) {
    start_finish();
}
