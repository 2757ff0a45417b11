#include "thread/fork.h"

#include "base/base.h"
#include "heap/guarded.h"
#include "heap/guarded_report.h"
#include "heap/huge.h"
#include "os/file.h"
#include "os/streams.h"
#include "space/arena.h"
#include "space/huge_pages.h"
#include "space/metadata.h"
#include "space/page_map.h"
#include "thread/knobs.h"
#include "thread/lifecycle.h"
#include "thread/research.h"

// The forking thread takes every lock, in rank order, so that the child's copy of each structure is
// whole. Magazines are their threads' alone and under no lock: the kernel copies
// pages one after another while other threads run, so the child may find the pointer without the
// slot it points behind. The child therefore forgets the magazines of the threads it has lost; their
// blocks, a cache's worth each, stay in use there for good. Those of caches that keep blocks are covered by the registry's
// lock: the child has them as they were.

struct lock fork_handlers_lock = LOCK_INITIAL(LOCK_RANK_FORK_HANDLERS);
_Atomic(uintptr_t) fork_registrar;  // relaxed: see fork.h

// While a process has one thread, a fork in a signal handler finds its own interrupted malloc, and must not wait for it.
static bool fork_locked;

// Forks that began in handlers of one that has the locks: these stay that one's. Written by the thread that has them.
static uint32_t forks_within;

void fork_prepare(void) {
    if (unlikely(lock_passes_for_fork())) {
        forks_within++;
        return;
    }
    huge_pages_fork();
    // A handler may have interrupted the start as well, which the thread goes on with in the child.
    if (lifecycle_is_single_threaded() || unlikely(lifecycle_is_starting())) {
        return;
    }
    lifecycle_start();
    streams_fork_lock();
    lock_acquire(&fork_handlers_lock);
    huge_fork_lock();
    lifecycle_fork_lock();
    guarded_fork_lock();
    arena_fork_lock();
    page_map_fork_lock();
    metadata_fork_lock();
    fork_locked = true;
    lock_fork_begin();
}

static void unlock_all(void) {
    lock_fork_end();
    fork_locked = false;
    metadata_fork_unlock();
    page_map_fork_unlock();
    arena_fork_unlock();
    guarded_fork_unlock();
    lifecycle_fork_unlock();
    huge_fork_unlock();
    lock_release(&fork_handlers_lock);
}

void fork_parent(void) {
    if (unlikely(lock_passes_for_fork()) && forks_within != 0) {
        forks_within--;
        return;
    }
    if (fork_locked) {
        unlock_all();
    }
    streams_fork_unlock();
}

bool fork_child(void) {
    forks_within = 0;
    // Another one's registration was not under way: fork_handlers_lock.
    atomic_store_relaxed(&fork_registrar, 0);
    if (cache_is_real(thread_cache)) {
        thread_cache->thread_id = os_thread_id();
        thread_cache->process_id = (uint32_t)os_process_id();
        // Its processor time begins at 0.
        knobs_call(&knobs_hooks.thread_start, thread_cache);
    }
    lock_abort_fork_child();
    streams_fork_child();
    if (!fork_locked) {
        return false;
    }
    lifecycle_fork_child();
    arena_fork_child();
    huge_fork_child();
    guarded_report_fork_child();
    research_fork_child();
    unlock_all();
    return true;
}
