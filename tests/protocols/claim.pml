/* A large or huge block that two threads free at the same moment (page_map_claim() in
 * src/space/page_map.c, huge_free() in src/heap/huge.c, large_free() in src/heap/large.c): the page map's entry goes
 * to one of them, the other is told. Meanwhile a third thread takes the freed descriptor for a block of its own, at
 * another address, which may cover the old one: that one must stay. It may free it again, and a slab take the page.
 *
 * planted: BUG_TEST_THEN_SET BUG_CLAIM_AT_START BUG_NO_SECOND_LOOK BUG_RESTORE_BY_STORE
 */

#define NONE 0
#define BLOCK 1 /* the number of the only descriptor */
#define SLAB 2
#define OLD 0   /* addresses */
#define NEW 1

byte entry[2];       /* the page map at both addresses */
byte start = OLD;    /* the descriptor's */
bool unused;         /* on the list of unused descriptors */
byte freed, refused; /* of the two frees of the old block */
bool made, covers;   /* the third thread's block is there; also where the old one was */
bool slab;           /* the page is a slab's */

init {
    entry[OLD] = BLOCK;
    run freer();
    run freer();
    run allocator()
}

/* The address came from the program; the descriptor from the page map. */
proctype freer() {
    byte place, found;
    bool claimed;
    found = entry[OLD];
    if
    :: found != BLOCK -> refused++
    :: found == BLOCK ->
        /* find_place(): the block starts there. */
        if
        :: start != OLD -> refused++
        :: start == OLD ->
#ifdef BUG_CLAIM_AT_START
            place = start;
#else
            place = OLD;
#endif
#ifdef BUG_TEST_THEN_SET
            claimed = (entry[place] == BLOCK);
            entry[place] = NONE;
#else
            atomic {
                claimed = (entry[place] == BLOCK);
                if
                :: claimed -> entry[place] = NONE
                :: else -> skip
                fi
            }
#endif
            if
            :: claimed ->
                assert(place == OLD);
                if
                :: start == OLD -> atomic { freed++; assert(!unused); unused = true }
#ifdef BUG_NO_SECOND_LOOK
                :: start != OLD -> atomic { freed++; assert(!unused); unused = true }
#else
                :: start != OLD ->
#ifdef BUG_RESTORE_BY_STORE
                    entry[OLD] = BLOCK;
#else
                    atomic { /* page_map_unclaim() */
                        if
                        :: entry[OLD] == NONE -> entry[OLD] = BLOCK
                        :: else -> skip
                        fi
                    }
#endif
                    refused++
#endif
                fi
            :: else -> refused++
            fi
        fi
    fi
}

proctype allocator() {
    if
    :: atomic { unused -> unused = false; start = NEW }
        entry[NEW] = BLOCK;
        made = true;
        if
        :: true -> skip
        :: true ->
            entry[OLD] = BLOCK;
            covers = true;
            if
            :: true -> skip
            :: true ->
                made = false;
                entry[NEW] = NONE;
                entry[OLD] = NONE;
                entry[OLD] = SLAB;
                slab = true
            fi
        fi
    :: true -> skip /* never came to it */
    fi;
    /* At the end of both frees the block is there, once. */
    freed + refused == 2;
    assert(freed == 1);
    assert(!made || entry[NEW] == BLOCK);
    assert(!(made && covers) || entry[OLD] == BLOCK);
    assert(!slab || entry[OLD] == SLAB)
}
