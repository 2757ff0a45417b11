/* Purging pages while others allocate (arena_purge(), arena_take(), arena_give() in src/space/arena*.c): the
 * lock is released around the system call, and the pages are meanwhile neither free nor in a run. Two
 * pages; two purgers, and two threads that take a page, use it and give it back.
 *
 * With FORK a signal handler forks in the middle of a purge that was not noted (purge_begin()), and this is the
 * child: its only thread has freed the pages (arena_fork_child()) when the purge goes on.
 *
 * No page is cleared while it is in use, none is handed out as zeroed that is not, none is lost.
 *
 * correct: FORK
 * planted: BUG_PAGES_STAY_FREE BUG_ZERO_WITHOUT_PURGE BUG_NOT_MARKED_PURGING BUG_STILL_ZERO
 * planted with FORK: BUG_FREED_TWICE
 */

#define ALL 3

bit lock;
byte free = ALL;
#ifdef FORK
byte dirty = ALL;    /* free, and may hold memory */
byte zero;           /* free, and reads as zero */
#else
byte dirty;
byte zero = ALL;
#endif
byte purging;
byte used;           /* in a run */
byte content = 0;    /* pages that hold something else than zeroes */
bool purged_once;

inline acquire() { atomic { lock == 0 -> lock = 1 } }
inline release() { lock = 0 }

inline check() {
    assert((free & used) == 0 && (free & purging) == 0 && (used & purging) == 0);
    assert((free | used | purging) == ALL);
    assert((dirty & zero) == 0 && (dirty | zero) == free)
}

/* arena_take(), a use of the page, arena_give(). */
proctype user() {
    byte page, round;
    bool zeroed;
    for (round : 1 .. 2) {
        acquire();
        if
        :: free & 1 -> page = 1
        :: free & 2 -> page = 2
        :: free == 0 -> page = 0
        fi;
        if
        :: page != 0 ->
            zeroed = ((zero & page) != 0);
            d_step { free = free & ~page; zero = zero & ~page; dirty = dirty & ~page; used = used | page; check() }
            release();
            assert(!zeroed || (content & page) == 0);
            content = content | page;
            assert((content & page) != 0);
            /* Whoever purges it now takes it away from its user. */
            assert((content & page) != 0);
            acquire();
#ifdef BUG_STILL_ZERO
            d_step { used = used & ~page; free = free | page; zero = zero | page }
#else
            d_step { used = used & ~page; free = free | page; dirty = dirty | page; check() }
#endif
        :: else -> skip
        fi;
        release()
    }
}

/* purge_superslab() */
proctype purger() {
    byte due, purged, round;
    for (round : 1 .. 2) {
        acquire();
        due = dirty;
        if
        :: due != 0 ->
#ifndef BUG_PAGES_STAY_FREE
            d_step { free = free & ~due; dirty = dirty & ~due }
#endif
#ifndef BUG_NOT_MARKED_PURGING
            purging = purging | due;
#endif
            release();
#ifdef FORK
            /* arena_fork_child() */
            acquire();
            d_step { free = free | purging; dirty = dirty | purging; purging = 0; check() }
            release();
#endif
            /* madvise, which may be refused. */
            if
            :: purged = due; content = content & ~due
            :: purged = 0
            fi;
#ifdef BUG_ZERO_WITHOUT_PURGE
            purged = due;
#endif
            acquire();
#ifndef BUG_NOT_MARKED_PURGING
#ifndef BUG_FREED_TWICE
            due = due & purging;
#endif
#endif
            purged = purged & due;
            d_step {
                purging = purging & ~due;
                free = free | due;
                zero = zero | purged;
                dirty = dirty | (due & ~purged);
                check()
            }
        :: else -> skip
        fi;
        release()
    }
    purged_once = true
}

init {
#ifdef FORK
    content = ALL;
    run purger();
    purged_once;
    run user();
#else
    atomic { run user(); run user(); run purger(); run purger() }
#endif
    _nr_pr == 1;
    assert(free == ALL && used == 0 && purging == 0);
    check()
}
