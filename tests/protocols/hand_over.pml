/* A heap that passes from thread to thread (src/thread/lifecycle.c): the first one empties its cache, or leaves its
 * blocks in it, gives heap and cache to the registry, the next one takes them; meanwhile another thread frees a block of
 * the heap, a harvester collects it, and a tick empties a cache that keeps blocks. Then the process forks while the
 * second thread is at work: in the child, its cache is an orphan, whose magazine may be a torn copy, and a new thread
 * takes it; or the cache waits with its blocks, and the new thread has them.
 *
 * No block is handed out twice, and in the parent none is lost.
 *
 * planted: BUG_LISTED_FIRST BUG_NOT_EMPTIED BUG_TWO_OWNERS BUG_ORPHAN_TRUSTED BUG_UNLOCKED_COPY BUG_UNLOCKED_TICK
 */

#define ALL 3
#define NOBODY 9

bit registry_lock, heap_lock;
bool unused;            /* the cache is in one of the registry's lists */
bool kept;              /* in that of the caches that keep blocks */
byte held;              /* the slab's bits */
byte returned;          /* remote bits */
byte magazine;          /* the cache's */
byte live;              /* with the program */
byte passed;            /* block that the freeing thread has */
byte owners;            /* threads that use the cache */

/* The child's copies. */
bool forked, child_kept;
byte kept_magazine;     /* the cache's as the fork began */
byte child_held, child_returned, child_magazine, child_live;

inline acquire(l) { atomic { l == 0 -> l = 1 } }
inline release(l) { l = 0 }

inline hand_out(block) {
    assert((live & block) == 0 && (passed & block) == 0);
    live = live | block
}

/* cache_empty(), and the collecting of lifecycle_detach(). */
inline flush() {
    acquire(heap_lock);
    d_step { assert((held & magazine) == 0); held = held | magazine; magazine = 0 }
    d_step { assert((held & returned) == 0); held = held | returned; returned = 0 }
    release(heap_lock)
}

inline give_back(keeps) {
    acquire(registry_lock);
    kept = keeps;
    unused = true;
    release(registry_lock)
}

proctype first() {
    /* Has both blocks: one goes to the other thread, one to its magazine. */
    d_step { live = 2; passed = 1; owners = 1 }
    d_step { live = 0; magazine = 2 }
#ifdef BUG_LISTED_FIRST
    give_back(false);
    flush();
    d_step { assert(owners == 1); owners = 0 }
#else
    if
    ::
#ifndef BUG_NOT_EMPTIED
        flush();
#endif
        owners = 0;
        give_back(false)
    ::
        owners = 0;
        give_back(true)
    fi
#endif
}

/* Waits for the cache, allocates what is there, frees it, and ends as well. */
proctype next() {
    byte block;
    bool taken, was_kept;
#ifdef BUG_TWO_OWNERS
    unused;
    acquire(registry_lock);
    taken = unused;
    was_kept = kept;
    release(registry_lock);
    d_step { unused = false; kept = false }
#else
    acquire(registry_lock);
    d_step { taken = unused; was_kept = kept }
    d_step { unused = false; kept = false }
    release(registry_lock);
#endif
    if
    :: taken ->
        owners++;
        assert(owners == 1);
        acquire(heap_lock);
        d_step { assert((held & returned) == 0); held = held | returned; returned = 0 }
        /* The refill, to the magazine; in the child it may be seen in parts. */
        d_step { assert(was_kept || magazine == 0); block = held; held = 0 }
        release(heap_lock);
        magazine = magazine | block;
        if
        :: (magazine & 2) ->
            magazine = magazine & ~2;
            hand_out(2);
            live = live & ~2;
            magazine = magazine | 2
        :: else -> skip
        fi;
        if
        :: flush(); owners--; give_back(false)
        :: owners--; give_back(true)
        fi
    :: else -> skip
    fi
}

/* lifecycle_empty_overdue(): has the cache beside its own meanwhile, as a thread has it. */
proctype ticker() {
    bool taken;
#ifndef BUG_UNLOCKED_TICK
    acquire(registry_lock);
#endif
    taken = unused && kept;
    if
    :: taken -> d_step { unused = false; kept = false }
    :: else -> skip
    fi;
#ifndef BUG_UNLOCKED_TICK
    release(registry_lock);
#endif
    if
    :: taken ->
        owners++;
        assert(owners == 1);
        flush();
        owners--;
        give_back(false)
    :: else -> skip
    fi
}

proctype freer() {
    passed == 1;
    d_step { passed = 0; returned = returned | 1 }
}

proctype harvester() {
    acquire(heap_lock);
    d_step { assert((held & returned) == 0); held = held | returned; returned = 0 }
    release(heap_lock)
}

/* fork_prepare(), fork, fork_child(), and a new thread of the child that takes the orphan. The kernel
 * copies pages one after another: of what is under no lock, the child may see any state there was
 * meanwhile. */
proctype forker() {
    byte copied;
#ifndef BUG_UNLOCKED_COPY
    acquire(registry_lock);
    acquire(heap_lock);
#endif
    d_step { child_held = held; child_returned = returned; child_kept = unused && kept; kept_magazine = magazine }
    copied = magazine;
    d_step { child_live = live | passed; child_magazine = copied }
#ifndef BUG_UNLOCKED_COPY
    release(heap_lock);
    release(registry_lock);
#endif
    /* lifecycle_attach() in the child: cache_forget() of an orphan. */
#ifndef BUG_ORPHAN_TRUSTED
    if
    :: !child_kept -> child_magazine = 0
    :: else -> assert(child_magazine == kept_magazine)
    fi;
#endif
    d_step {
        /* What the child hands out is in no other hands of its own. */
        assert((child_held & child_returned) == 0);
        assert(((child_held | child_returned | child_magazine) & child_live) == 0);
        assert((child_held & child_magazine) == 0);
        forked = true
    }
}

init {
    atomic { run first(); run next(); run next(); run freer(); run harvester(); run ticker(); run forker() }
    _nr_pr == 1;
    assert((held | returned | magazine) == ALL);
    assert(live == 0 && forked && unused && owners == 0)
}
