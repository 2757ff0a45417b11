/* A heap that passes from thread to thread (src/thread/lifecycle.c): the first one empties its cache, gives
 * heap and cache to the registry, the next one takes them; meanwhile another thread frees a block of
 * the heap, and a harvester collects it. Then the process forks while the second thread is at work: in
 * the child, its cache is an orphan, whose magazine may be a torn copy, and a new thread takes it.
 *
 * No block is handed out twice, and in the parent none is lost.
 *
 * planted: BUG_LISTED_FIRST BUG_NOT_EMPTIED BUG_TWO_OWNERS BUG_ORPHAN_TRUSTED BUG_UNLOCKED_COPY
 */

#define ALL 3
#define NOBODY 9

bit registry_lock, heap_lock;
bool unused;            /* the cache is in the registry's list */
byte held;              /* the slab's bits */
byte returned;          /* remote bits */
byte magazine;          /* the cache's */
byte live;              /* with the program */
byte passed;            /* block that the freeing thread has */
byte owners;            /* threads that use the cache */

/* The child's copies. */
bool forked, whole;
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

inline give_back() {
    acquire(registry_lock);
    unused = true;
    release(registry_lock)
}

proctype first() {
    /* Has both blocks: one goes to the other thread, one to its magazine. */
    d_step { live = 2; passed = 1; owners = 1 }
    d_step { live = 0; magazine = 2 }
#ifdef BUG_LISTED_FIRST
    give_back();
    flush();
    d_step { assert(owners == 1); owners = 0 }
#else
#ifndef BUG_NOT_EMPTIED
    flush();
#endif
    owners = 0;
    give_back()
#endif
}

/* Waits for the cache, allocates what is there, frees it, and ends as well. */
proctype next() {
    byte block;
    bool taken;
#ifdef BUG_TWO_OWNERS
    unused;
    acquire(registry_lock);
    taken = unused;
    release(registry_lock);
    unused = false;
#else
    acquire(registry_lock);
    taken = unused;
    unused = false;
    release(registry_lock);
#endif
    if
    :: taken ->
        owners++;
        assert(owners == 1);
        acquire(heap_lock);
        d_step { assert((held & returned) == 0); held = held | returned; returned = 0 }
        /* The refill, to the magazine; in the child it may be seen in parts. */
        d_step { assert(magazine == 0); block = held; held = 0 }
        release(heap_lock);
        magazine = block;
        if
        :: (magazine & 2) ->
            magazine = magazine & ~2;
            hand_out(2);
            live = live & ~2;
            magazine = magazine | 2
        :: else -> skip
        fi;
        flush();
        owners--;
        give_back()
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
    d_step { child_held = held; child_returned = returned }
    copied = magazine;
    d_step { child_live = live | passed; child_magazine = copied }
#ifndef BUG_UNLOCKED_COPY
    release(heap_lock);
    release(registry_lock);
#endif
    /* lifecycle_attach() in the child: cache_forget(). */
#ifndef BUG_ORPHAN_TRUSTED
    child_magazine = 0;
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
    atomic { run first(); run next(); run next(); run freer(); run harvester(); run forker() }
    _nr_pr == 1;
    assert((held | returned | magazine) == ALL);
    assert(live == 0 && forked && unused && owners == 0)
}
