// The shared library's own pthread_atfork. Constructors of the libraries that a program is linked with run before that
// of a preloaded one, and may register handlers of fork: this library's then come first even so.
//
// Not in the archive: there the constructor in start.c is early enough. Nor for musl, which runs it early.
#include "api/atfork.h"

#include <dlfcn.h>
#include <errno.h>

#include "api/libc_version.h"
#include "base/atomic.h"
#include "base/base.h"
#include "thread/fork.h"

#if defined(__GLIBC__)
__typeof__(__register_atfork) *hakmem_atfork_next(void) {
    // Relaxed, and set to the same value by whoever comes first: pairs with nothing.
    static _Atomic(uintptr_t) found;
    uintptr_t next = atomic_load_relaxed(&found);
    if (next == 0) {
        next = (uintptr_t)dlsym(RTLD_NEXT, "__register_atfork");
        if (next == 0) {
            // A program that is linked with this library behind the C library, whose malloc it then has.
            next = (uintptr_t)dlsym(RTLD_DEFAULT, "__register_atfork");
        }
        next = next == (uintptr_t)__register_atfork ? 0 : next;
        atomic_store_relaxed(&found, next);
    }
    return (__typeof__(__register_atfork) *)next;
}

// Whether the C library's fork gives the lock of its list of handlers up around each of them: glibc does from 2.36 on. Before, who
// registers one waits for a fork, which never waits for him.
static bool fork_lets_registrations_in(void) {
    return glibc_is_at_least(36);
}

EXPORTED int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
                               void *handle) {
    start_watch_forks();
    __typeof__(__register_atfork) *const next = hakmem_atfork_next();
    if (next == NULL) {
        return ENOMEM;
    }
    if (!fork_lets_registrations_in()) {
        return next(prepare, parent, child, handle);
    }
    lock_acquire(&fork_handlers_lock);
    atomic_store_relaxed(&fork_registrar, os_thread_pointer());
    const int error = next(prepare, parent, child, handle);
    atomic_store_relaxed(&fork_registrar, 0);
    lock_release(&fork_handlers_lock);
    return error;
}
#endif
