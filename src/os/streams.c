#include "os/streams.h"

// It may be taken several times.
extern void _IO_list_lock(void) __attribute__((weak));
extern void _IO_list_unlock(void) __attribute__((weak));
extern void _IO_list_resetlock(void) __attribute__((weak));

_Atomic(uintptr_t) streams_owner;  // relaxed: see streams.h

// How often the owner has it: a handler of another library may fork itself. Relaxed: changed under it. Pairs with nothing.
static _Atomic(uint32_t) taken_count;

void streams_fork_lock(void) {
    if (&_IO_list_lock == NULL || &_IO_list_unlock == NULL || &_IO_list_resetlock == NULL) {
        return;
    }
    _IO_list_lock();
    atomic_store_relaxed(&streams_owner, os_thread_pointer());
    atomic_bump_owned(&taken_count, 1u);
}

void streams_fork_unlock(void) {
    if (streams_are_mine()) {
        atomic_bump_owned(&taken_count, (uint32_t)-1);
        if (atomic_load_relaxed(&taken_count) == 0) {
            atomic_store_relaxed(&streams_owner, 0);
        }
        _IO_list_unlock();
    }
}

void streams_fork_child(void) {
    if (streams_are_mine()) {
        atomic_store_relaxed(&taken_count, 0);
        atomic_store_relaxed(&streams_owner, 0);
        _IO_list_resetlock();
    }
}
