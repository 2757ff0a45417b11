// Beginning and end of the process, and fork: where the layers meet the loader.
#include <pthread.h>

#include "api/alloc.h"
#include "base/text.h"
#include "config/options.h"
#include "control/report.h"
#include "control/stats.h"
#include "thread/fork.h"
#include "thread/lifecycle.h"

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
}

static bool verify_at_exit(void) {
    return option_live(exit_check) && cache_is_real(thread_cache);
}

void start_finish(void) {
    // Relaxed: exit handlers run in one thread; a second call finds it set. Pairs with nothing.
    static _Atomic(bool) finished;
    if (atomic_load_relaxed(&finished)) {
        return;
    }
    atomic_store_relaxed(&finished, true);
    if (verify_at_exit()) {
        cache_verify(thread_cache);
    }
    if (option_live(check) != 0) {
        check_all();
    }
    if (option_live(stats_at_exit)) {
        stats_print(2);
    }
    report_finish();
}

__attribute__((destructor)) static void finish(void) {
    start_finish();
}
