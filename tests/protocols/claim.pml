/* A large or huge block that two threads free at the same moment (page_map_claim() in
 * src/space/page_map.c, huge_free() in src/heap/huge.c, large_free() in src/heap/large.c): the page map's entry goes
 * to one of them, the other is told. Meanwhile a third thread takes the freed descriptor for a block of its own at
 * another address, or one that has another descriptor; this may cover the old address, and must stay. It may end again,
 * and leave the page free, have a slab take it, or a block of the first descriptor begin there: that one is freed once, by its
 * owner or, as nobody can tell, by who comes late with the second free.
 *
 * HUGE: an entry names its descriptor, so that no other one covers the page, and the kind is not looked at; the unused
 * descriptor may be given the old address without an entry, as those of kept and leaving mappings are.
 *
 * correct: HUGE
 * planted with HUGE: BUG_NO_SECOND_LOOK BUG_NO_THIRD_LOOK BUG_CLAIM_IS_NONE
 * planted: BUG_TEST_THEN_SET BUG_CLAIM_AT_START BUG_NO_SECOND_LOOK BUG_RESTORE_BY_STORE BUG_CLAIM_IS_NONE
 * planted: BUG_CLAIMS_ALIKE BUG_NO_THIRD_LOOK BUG_KIND_UNSEEN
 */

#define NONE 0
#define BLOCK 1 /* the entry of large blocks, whatever their descriptors, or of the huge one; the kind */
#define SLAB 2
#ifdef BUG_CLAIM_IS_NONE
#define CLAIM NONE
#else
#ifdef BUG_CLAIMS_ALIKE
#define CLAIM 3
#else
#define CLAIM (3 + _pid)
#endif
#endif
#define OLD 0 /* addresses */
#define NEW 1

byte entry[2];     /* the page map at both addresses */
byte start = OLD;  /* the descriptor's */
byte kind = BLOCK; /* the descriptor's: NONE while it is unused */
bool unused;       /* on the list of unused descriptors */
byte ended;        /* frees of the old block that are through */
byte freed;        /* those that were right */
bool moved;        /* the third thread's block has the descriptor, at NEW */
bool covers;       /* a block of his is where the old one was */
bool slab, left;   /* the page is a slab's, or free */
bool again;        /* a block begins at the old address again */
byte freed_again;
bool owner_freed;  /* it, by his own word */

init {
    entry[OLD] = BLOCK;
    run freer();
    run freer();
    run allocator()
}

/* No page has an entry any more when the descriptor is unused. */
inline give() {
    if
    :: again -> freed_again++
    :: else -> freed++
    fi;
    entry[OLD] = NONE;
    kind = NONE;
    atomic { assert(!unused); unused = true }
}

/* large_free() of the block that starts at OLD. */
inline free_old(place, claimed, right) {
#ifdef BUG_CLAIM_AT_START
    place = start;
#else
    place = OLD;
#endif
#ifdef BUG_TEST_THEN_SET
    claimed = (entry[place] == BLOCK);
    if
    :: claimed -> entry[place] = CLAIM
    :: else -> skip
    fi;
#else
    atomic { /* page_map_claim() */
        claimed = (entry[place] == BLOCK);
        if
        :: claimed -> entry[place] = CLAIM
        :: else -> skip
        fi
    };
#endif
    if
    :: claimed ->
        assert(place == OLD);
        right = true;
#ifndef HUGE
#ifndef BUG_KIND_UNSEEN
        right = (kind == BLOCK);
#endif
#endif
#ifndef BUG_NO_SECOND_LOOK
        right = right && (start == OLD);
#endif
#ifndef BUG_NO_THIRD_LOOK
        right = right && (entry[OLD] == CLAIM); /* page_map_claim_stands() */
#endif
        if
        :: right -> give()
        :: else ->
#ifdef BUG_RESTORE_BY_STORE
            entry[OLD] = BLOCK
#else
            atomic { /* page_map_unclaim() */
                if
                :: entry[OLD] == CLAIM -> entry[OLD] = BLOCK
                :: else -> skip
                fi
            }
#endif
        fi
    :: else -> skip
    fi
}

/* The address came from the program; the descriptor from the page map. */
proctype freer() {
    byte place, found;
    bool claimed, right;
    found = entry[OLD];
    if
    :: found == BLOCK ->
        /* find_place(): the block starts there. */
        if
        :: start == OLD -> free_old(place, claimed, right)
        :: else -> skip
        fi
    :: else -> skip
    fi;
    ended++
}

proctype allocator() {
    byte place;
    bool claimed, right;
    if
    :: unused ->
        if
        :: true -> unused = false; start = NEW; kind = BLOCK; entry[NEW] = BLOCK; moved = true
#ifndef HUGE
        :: true -> skip /* has another descriptor */
#endif
        fi;
        if
        :: true -> skip
        :: true ->
            entry[OLD] = BLOCK;
            covers = true;
            if
            :: true -> skip
            :: true ->
                covers = false;
                entry[OLD] = NONE;
                if
                :: moved ->
                    moved = false;
                    entry[NEW] = NONE;
                    kind = NONE;
                    atomic { assert(!unused); unused = true }
                :: else -> skip
                fi;
                if
#ifdef HUGE
                :: true -> start = OLD; left = true
#endif
                :: true -> left = true
                :: true -> entry[OLD] = SLAB; slab = true
                :: true ->
                    atomic { assert(unused); unused = false; again = true };
                    start = OLD;
                    kind = BLOCK;
                    entry[OLD] = BLOCK;
                    if
                    :: true -> skip
                    :: true -> free_old(place, claimed, right); owner_freed = true
                    fi
                fi
            fi
        fi
    :: true -> skip /* never came to it */
    fi;
    /* At the end of both frees the block is there, once. */
    ended == 2;
    assert(freed == 1);
    assert(!moved || entry[NEW] == BLOCK);
    assert(!covers || entry[OLD] == BLOCK);
    assert(!left || entry[OLD] == NONE);
    assert(!slab || entry[OLD] == SLAB);
    assert(!owner_freed || freed_again == 1);
    assert(!again || entry[OLD] == (freed_again == 0 -> BLOCK : NONE))
}
