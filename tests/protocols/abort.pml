/* A thread that ends the process beside threads that fork (lock_sleep_with_streams() in src/os/lock.c). It noticed misuse under a
 * heap's lock, which it gives back only if its handler of SIGABRT allocates; then the handler waits for the C library's
 * list of streams. A fork takes that list before it takes the heap's lock, and the C library's fork takes it once more behind
 * all handlers. Two threads fork, another allocates. The process ends, whoever waits for what.
 *
 * planted: BUG_LIST_KEPT BUG_LOOKS_ONCE BUG_ONE_KEEPS_LIST BUG_GIVEN_BACK_TWICE
 */

#define NOBODY 255

byte streams = NOBODY;  /* who has the list */
byte heap = NOBODY;     /* who has the heap's lock */
bit aborting;           /* aborting_count */
bit ended;

inline acquire(lock) {
    atomic { lock == NOBODY -> lock = _pid }
}

inline release(lock) {
    atomic { assert(lock == _pid); lock = NOBODY }
}

/* lock_acquire_slow() by the thread that forks: it sleeps for some time, and looks. */
inline acquire_heap() {
    do
    :: atomic { heap == NOBODY -> heap = _pid; break }
#ifndef BUG_LIST_KEPT
#ifdef BUG_ONE_KEEPS_LIST
    :: has && aborting && _pid == 1 ->
#else
    :: has && aborting ->
#endif
#ifndef BUG_GIVEN_BACK_TWICE
        has = 0;
#endif
        release(streams)
#endif
    od
}

proctype forker() {
    bit has;
    {
        acquire(streams);
        has = 1;
#ifdef BUG_LOOKS_ONCE
        if
        :: aborting -> release(streams); has = 0
        :: else -> skip
        fi;
        acquire(heap);
#else
        acquire_heap();
#endif
        /* The C library's own. Who has it may take it again. */
        if
        :: has -> skip
        :: else -> acquire(streams)
        fi;
        /* fork() */
        if
        :: has -> skip
        :: else -> release(streams)
        fi;
        release(heap);
        if
        :: has -> release(streams)
        :: else -> skip
        fi
    } unless {
        ended
    }
}

proctype worker() {
    {
        acquire(heap);
        release(heap)
    } unless {
        ended
    }
}

proctype aborter() {
    acquire(heap);
    aborting = 1;
    /* The handler. */
    if
    :: release(heap)
    :: skip
    fi;
    acquire(streams);
    ended = 1
}

init {
    atomic { run forker(); run forker(); run worker(); run aborter() }
}
