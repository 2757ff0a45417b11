/* A large or huge block that two threads free at the same moment (page_map_claim() in
 * src/space/page_map.c, huge_free() in src/heap/huge.c): the page map's entry goes to one of them, the
 * other is told. Meanwhile a third thread takes the freed descriptor for a block of its own, at another
 * address: that one must stay.
 *
 * planted: BUG_TEST_THEN_SET BUG_CLAIM_AT_START
 */

#define NONE 0
#define BLOCK 1 /* the number of the only descriptor */
#define OLD 0   /* addresses */
#define NEW 1

byte entry[2];       /* the page map at both addresses */
byte start = OLD;    /* the descriptor's */
bool unused;         /* on the list of unused descriptors */
byte freed, refused; /* of the two frees of the old block */
bool made, ended;    /* the third thread's block */

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
    :: found == NONE -> refused++
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
                atomic { freed++; assert(!unused); unused = true }
            :: else -> refused++
            fi
        fi
    fi
}

proctype allocator() {
    if
    :: atomic { unused -> unused = false; start = NEW }
        entry[NEW] = BLOCK;
        made = true
    :: true -> skip /* never came to it */
    fi;
    /* At the end of both frees the block is there, once. */
    freed + refused == 2;
    assert(freed == 1);
    assert(!made || entry[NEW] == BLOCK)
}
