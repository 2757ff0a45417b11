/* Remote frees (src/heap/heap.c: heap_publish, heap_collect): freeing threads set a bit in a word of the
 * slab's remote_bits, then the word's bit in remote_summary, then push the slab on the heap's list; each
 * step only for the one that found the former empty. Collectors take the list, then the link, then the
 * summary, then the words.
 *
 * One descriptor. Its first slab belongs to heap 1 and has three blocks out: two in word 0, one in word
 * 1, freed by two threads. When all are back the slab ends, and heap 2 makes another one in its place,
 * whose blocks two threads free. Each heap is collected by its owner and by a harvester.
 *
 * With MISUSE a thread also frees a block of the first slab that heap 1's owner has freed, too. Its bits
 * come while the slab lives (the later ones are a free of somebody else's block, which nothing can tell
 * from a right one), but its announcement may come late: when the slab is gone or has become heap 2's.
 * Nothing else may suffer: no link is overwritten, no block of the second slab is lost.
 *
 * Checked: a slab is on one list at most, it ends only when no other thread will touch it (unless
 * MISUSE), every block comes back, no block comes back twice, and an empty list leaves no bits behind.
 *
 * correct: MISUSE
 * planted: BUG_LINK_READ_LATE BUG_ANNOUNCED_FIRST BUG_SUMMARY_IN_TWO_STEPS BUG_WORD_BEFORE_SUMMARY
 * planted with MISUSE: BUG_OWNER_BEFORE_EXCHANGE BUG_SUMMARY_RESET BUG_LATE_DROPPED
 */

#define WORDS 2

/* A late announcement may bring a right one's bits in before that one's own announcement, which is then
 * late as well. */
#ifdef MISUSE
#define REQUIRE_LIFE skip
#else
#define REQUIRE_LIFE assert(life == own)
#endif

byte owner_of = 1;      /* slab->heap; 0: NULL */
byte life = 1;          /* which slab lies there: 1, 0 between the two, 2 */
byte lock[3];           /* of the heaps: 0 free */
byte free_bits[WORDS];
byte remote_bits[WORDS];
byte summary;           /* bit w: word w */
bit list[3];            /* heap->remote_slabs: the only slab is there */
bool linked;            /* remote_next is in use: from the push to the collector's reading it */
bool handed_out[3];     /* blocks of that life are with the threads that free them */
byte running;           /* threads that free */
byte reports;           /* double frees noticed */
byte ended;             /* slabs that got all their blocks back */

byte all[WORDS];        /* blocks of the slab, by word */

inline push(heap) {
    assert(!linked);
    d_step { linked = true; assert(!list[heap]); list[heap] = 1 }
}

/* heap_publish(). Until its last step the slab stays: the blocks have not been collected. */
inline publish(word, bits) {
    heap = owner_of;
    assert(life == own && heap == own);
#ifdef BUG_ANNOUNCED_FIRST
    atomic { before = summary; summary = summary | (1 << word) }
    if
    :: before == 0 -> push(heap)
    :: else -> skip
    fi;
    atomic { remote_bits[word] = remote_bits[word] | bits }
#else
    atomic { before = remote_bits[word]; remote_bits[word] = remote_bits[word] | bits }
    if
    :: (before & bits) != 0 -> reports++
    :: else -> skip
    fi;
    if
    :: before == 0 ->
        atomic { REQUIRE_LIFE; before = summary; summary = summary | (1 << word) }
        if
        :: before == 0 -> REQUIRE_LIFE; push(heap)
        :: else -> skip
        fi
    :: else -> skip
    fi
#endif
}

/* slab_destroy(), with require_nothing_remote(): under the heap's lock. */
inline destroy() {
#ifndef MISUSE
    assert(remote_bits[0] == 0 && remote_bits[1] == 0 && summary == 0 && !linked);
#endif
    if
    :: summary != 0 ->
        atomic { if :: remote_bits[0] != 0 -> reports++; remote_bits[0] = 0 :: else -> skip fi }
        atomic { if :: remote_bits[1] != 0 -> reports++; remote_bits[1] = 0 :: else -> skip fi }
    :: else -> skip
    fi;
    d_step { owner_of = 0; free_bits[0] = 0; free_bits[1] = 0; life = 0; ended++ }
}

/* put_bits(): under the heap's lock. */
inline put(word, bits) {
    d_step { assert((free_bits[word] & bits) == 0); free_bits[word] = free_bits[word] | bits }
    if
    :: free_bits[0] == all[0] && free_bits[1] == all[1] -> destroy(); gone = true
    :: else -> skip
    fi
}

inline collect_word(word) {
    if
    :: !gone && (seen & (1 << word)) ->
        atomic { bits = remote_bits[word]; remote_bits[word] = 0 }
        if
        :: (bits & free_bits[word]) != 0 -> reports++; bits = bits & ~free_bits[word]
        :: else -> skip
        fi;
        if
        :: bits != 0 -> put(word, bits)
        :: else -> skip
        fi
    :: else -> skip
    fi
}

/* forward_remote() */
inline forward() {
#ifdef BUG_LATE_DROPPED
    skip
#else
    atomic { before = summary; summary = summary | seen }
    if
    :: before == 0 -> push(owner)
    :: else -> skip
    fi
#endif
}

/* heap_collect(): under the lock of heap h. */
inline collect(h) {
    gone = false;
    atomic { found = list[h]; list[h] = 0 }
    if
    :: found ->
#ifdef BUG_OWNER_BEFORE_EXCHANGE
        owner = owner_of;
#endif
#ifndef BUG_LINK_READ_LATE
        linked = false;
#endif
#ifdef BUG_WORD_BEFORE_SUMMARY
        seen = summary;
        collect_word(0);
        collect_word(1);
        summary = 0;
        seen = 0;
#else
#ifdef BUG_SUMMARY_IN_TWO_STEPS
        seen = summary;
        summary = 0;
#else
        atomic { seen = summary; summary = 0 }
#endif
#endif
#ifdef BUG_LINK_READ_LATE
        linked = false;
#endif
#ifndef BUG_OWNER_BEFORE_EXCHANGE
        owner = owner_of;
#endif
        if
        :: owner == h -> collect_word(0); collect_word(1)
        :: owner != h && owner != 0 -> forward()
        :: owner == 0 -> skip
        fi
    :: else -> skip
    fi
}

inline acquire(h) { atomic { lock[h] == 0 -> lock[h] = 1 } }
inline release(h) { lock[h] = 0 }

/* A thread that frees blocks of one life: word and bits, then perhaps another word. */
proctype freer(byte own; byte word1; byte bits1; byte word2; byte bits2) {
    byte heap, before;
    handed_out[own];
    publish(word1, bits1);
    if
    :: bits2 != 0 -> publish(word2, bits2)
    :: else -> skip
    fi;
    running--
}

#ifdef MISUSE
/* Frees block 1 of word 0 of the first slab, which heap 1's owner frees as well. */
proctype misuser() {
    byte heap, before;
    atomic {
        if
        :: life == 1 && (free_bits[0] & 1) == 0 ->
            /* The check, and the bit, while the slab lives. */
            heap = owner_of;
            before = remote_bits[0];
            remote_bits[0] = remote_bits[0] | 1
        :: else -> heap = 0 /* noticed at once */
        fi
    }
    if
    :: heap != 0 && before == 0 ->
        atomic { before = summary; summary = summary | 1 }
        if
        :: before == 0 -> push(heap)
        :: else -> skip
        fi
    :: else -> skip
    fi;
    running--
}
#endif

/* Collects when there is something; ends when nothing can come any more. */
proctype owner1() {
    byte seen, bits, before, owner;
    bool found, gone;
#ifdef MISUSE
    /* heap_put() of the block that is freed twice. */
    acquire(1);
    if
    :: life == 1 ->
        if
        :: (free_bits[0] & 1) != 0 -> reports++
        :: else -> put(0, 1)
        fi
    :: else -> skip
    fi;
    release(1);
#endif
    do
    :: list[1] -> acquire(1); collect(1); release(1)
    :: running == 0 && !list[1] && !list[2] && lock[1] == 0 && lock[2] == 0 -> break
    od
}

/* Makes the second slab when the place is free, hands its blocks out, and collects them. */
proctype owner2() {
    byte seen, bits, before, owner;
    bool found, gone;
    life == 0;
    acquire(2);
    /* slab_create(): bitmaps are new, the summary is as it was. heap_take(): all blocks go out. */
    d_step { remote_bits[0] = 0; remote_bits[1] = 0 }
#ifdef BUG_SUMMARY_RESET
    summary = 0;
#endif
    owner_of = 2;
#ifdef MISUSE
    free_bits[1] = all[1]; /* this one stays */
#endif
    d_step { life = 2; handed_out[2] = true }
    release(2);
    do
    :: list[2] -> acquire(2); collect(2); release(2)
    :: running == 0 && !list[1] && !list[2] && lock[1] == 0 && lock[2] == 0 -> break
    od
}

proctype harvester() {
    byte seen, bits, before, owner;
    bool found, gone;
    do
    :: list[1] && lock[1] == 0 -> acquire(1); collect(1); release(1)
    :: list[2] && lock[2] == 0 -> acquire(2); collect(2); release(2)
    :: running == 0 && !list[1] && !list[2] && lock[1] == 0 && lock[2] == 0 -> break
    od
}

init {
    atomic {
        all[0] = 3;
        all[1] = 1;
        handed_out[1] = true;
#ifdef MISUSE
        running = 3;
        run misuser();
        run freer(1, 0, 2, 1, 1);
#else
        running = 4;
        run freer(1, 0, 1, 1, 1);
        run freer(1, 0, 2, 0, 0);
        run freer(2, 1, 1, 0, 0);
#endif
        run freer(2, 0, 3, 0, 0);
        run owner1();
        run owner2();
        run harvester()
    }
    _nr_pr == 1;
    assert(ended == 2);
    assert(summary == 0 && !linked && !list[1] && !list[2]);
#ifndef MISUSE
    assert(remote_bits[0] == 0 && remote_bits[1] == 0 && reports == 0)
#endif
}
