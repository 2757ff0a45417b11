/* An idle heap that another thread cleans up (src/thread/maintenance.c) while its owner may wake at any
 * moment. Two blocks of one slab; each is held by the slab's bitmap, in the owner's magazine, in use, or
 * on its way back from another thread. The heap's lock guards the bitmap; the magazine is under none.
 *
 * No block is handed out twice, a slab ends only when it holds both, and a purge clears no block that is
 * in use.
 *
 * planted: BUG_PURGE_WITHOUT_LOCK BUG_RELEASE_WITHOUT_LOCK BUG_CACHED_IS_FREE
 */

#define ALL 3

bit lock;
byte held = ALL;     /* free_bits */
byte returned;       /* remote_bits: set by another thread */
byte magazine;       /* the owner's alone */
byte live;           /* in use, by the owner or the other thread */
bool slab = true;    /* it exists */
byte content[2];     /* what the program wrote */
byte handed_over;    /* block that the owner gave to the other thread */

inline acquire() { atomic { lock == 0 -> lock = 1 } }
inline release() { lock = 0 }

inline collect() {
    atomic { bits = returned; returned = 0 }
    assert((held & bits) == 0);
    held = held | bits
}

/* heap_take(): both blocks that are there, into the magazine. */
inline refill() {
    acquire();
    collect();
    if
    :: !slab -> slab = true; held = ALL
    :: else -> skip
    fi;
    magazine = magazine | held;
    held = 0;
    release()
}

/* cache_empty() */
inline flush() {
    acquire();
    assert(slab);
    assert((held & magazine) == 0);
    held = held | magazine;
    magazine = 0;
    release()
}

inline use(block) {
    magazine = magazine & ~(1 << block);
    assert((live & (1 << block)) == 0);
    atomic { live = live | (1 << block) }
    content[block] = 7;
    assert(content[block] == 7)
}

active proctype owner() {
    byte bits, round;
    for (round : 1 .. 2) {
        refill();
        if
        :: magazine & 1 ->
            use(0);
            assert(slab && content[0] == 7);
            atomic { live = live & ~1 }
            magazine = magazine | 1
        :: else -> skip
        fi;
        if
        :: (magazine & 2) && handed_over == 0 ->
            use(1);
            handed_over = 2
        :: else -> skip
        fi;
        flush()
    }
}

/* Frees what the owner handed over: remote_free(), heap_publish(). */
active proctype other() {
    if
    :: handed_over == 2 ->
        assert(slab && content[1] == 7);
        atomic { live = live & ~2 }
        atomic { returned = returned | 2 }
    :: timeout -> skip /* the owner never had it */
    fi
}

active proctype harvester() {
    byte bits, seen, round;
    for (round : 1 .. 2) {
        acquire();
        collect();
#ifdef BUG_RELEASE_WITHOUT_LOCK
        seen = held;
        release();
#else
        seen = held;
#endif
#ifdef BUG_CACHED_IS_FREE
        seen = seen | magazine;
#endif
        /* heap_release_empty() */
        if
        :: slab && seen == ALL ->
            assert(live == 0 && magazine == 0);
            slab = false;
            held = 0
        :: else ->
            /* heap_purge_slabs() */
#ifdef BUG_PURGE_WITHOUT_LOCK
            release();
#endif
            if
            :: seen & 1 -> assert((live & 1) == 0); content[0] = 0
            :: else -> skip
            fi;
            if
            :: seen & 2 -> assert((live & 2) == 0); content[1] = 0
            :: else -> skip
            fi;
#ifdef BUG_PURGE_WITHOUT_LOCK
            acquire()
#endif
        fi;
#ifndef BUG_RELEASE_WITHOUT_LOCK
        release()
#endif
    }
}
