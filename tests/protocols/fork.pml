/* fork takes every lock, in rank order, and releases them all in parent and child (fork_prepare() and
 * unlock_all() in src/thread/fork.c). Two locks stand for all: a heap's, and the arena's, taken
 * inside it. Another fork handler of the forking thread allocates while they are held, and passes
 * through (lock_fork_owner); a second thread forks as well; a third allocates. In the child, which has
 * the forking thread only, allocation works and what each lock guards is whole.
 *
 * planted: BUG_WRONG_ORDER BUG_HANDLER_WAITS BUG_ONE_LOCK_FORGOTTEN BUG_CHILD_KEEPS_LOCKS BUG_PASS_FOR_ALL BUG_OWNER_LEFT
 */

#define HEAP 0
#define ARENA 1
#define NOBODY 255

bit lock[2];
byte fork_owner = NOBODY;   /* lock_fork_owner */
byte half[2];               /* what the lock guards is being changed */

/* The children's copies, looked at when they start. */
byte children;

inline acquire(l) {
    if
#ifdef BUG_PASS_FOR_ALL
    :: fork_owner != NOBODY -> skip
#else
#ifndef BUG_HANDLER_WAITS
    :: fork_owner == _pid -> skip
#endif
#endif
    :: atomic { lock[l] == 0 -> lock[l] = 1 }
    fi
}

inline release(l) {
    if
    :: fork_owner == _pid -> skip
    :: else -> lock[l] = 0
    fi
}

/* A large block. */
inline take_run() {
    acquire(ARENA);
    half[ARENA]++;
    assert(half[ARENA] == 1);
    half[ARENA]--;
    release(ARENA)
}

/* A refill that needs a new slab. */
inline allocate() {
    acquire(HEAP);
    half[HEAP]++;
    assert(half[HEAP] == 1);
    take_run();
    half[HEAP]--;
    release(HEAP)
}

inline take_all() {
#ifdef BUG_WRONG_ORDER
    acquire(ARENA);
    acquire(HEAP);
#else
    acquire(HEAP);
#ifndef BUG_ONE_LOCK_FORGOTTEN
    acquire(ARENA);
#endif
#endif
    fork_owner = _pid
}

inline unlock_all() {
#ifndef BUG_OWNER_LEFT
    fork_owner = NOBODY;
#endif
    lock[ARENA] = 0;
    lock[HEAP] = 0
}

proctype forker() {
    byte child_locks;
    take_all();
    /* A handler registered earlier than the allocator's runs after it. */
    allocate();
    /* fork() */
    d_step {
        assert(half[HEAP] == 0 && half[ARENA] == 0);
#ifdef BUG_CHILD_KEEPS_LOCKS
        child_locks = lock[HEAP] + lock[ARENA];
#else
        child_locks = 0; /* unlock_all() in the child */
#endif
        /* Nobody would ever release one. */
        assert(child_locks == 0);
        children++
    }
    unlock_all();
    allocate()
}

proctype worker() {
    allocate();
    take_run()
}

init {
    atomic { run forker(); run forker(); run worker(); run worker() }
    _nr_pr == 1;
    assert(children == 2 && lock[HEAP] == 0 && lock[ARENA] == 0 && fork_owner == NOBODY)
}
