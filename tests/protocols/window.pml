/* A window of the page map that two threads need at the same moment (page_map_cover() and open_window() in
 * src/space/page_map.c), while a third one looks addresses up in it (page_map_superslab(),
 * page_map_get() of the fallback). A window is made once, is complete before anyone finds it, and what
 * one thread wrote into it is not lost because another made it again. Where the system refuses the
 * memory for its entries, the next one tries again.
 *
 * planted: BUG_PUBLISHED_FIRST BUG_NO_SECOND_LOOK BUG_WITHOUT_LOCK BUG_LEFT_PUBLISHED
 */

#define NONE 0

byte window = NONE;      /* windows[index]: number of the piece of metadata */
bool complete[4];        /* entries of that piece are set */
byte pieces;             /* made so far */
byte superslab[4];       /* what the two threads enter: bit 1 and bit 2 */
bit lock;
byte refused;            /* times the system had no memory; once at most */

inline acquire() {
#ifndef BUG_WITHOUT_LOCK
    atomic { lock == 0 -> lock = 1 }
#else
    skip
#endif
}
inline release() { lock = 0 }

inline open_window() {
    atomic { pieces++; made = pieces }
    covered = true;
#ifdef BUG_PUBLISHED_FIRST
    window = made;
#endif
    if
    :: refused == 0 -> refused = 1; covered = false
    :: complete[made] = true
    fi;
#ifdef BUG_LEFT_PUBLISHED
    window = made
#else
    if
    :: covered -> window = made
    :: else -> skip
    fi
#endif
}

proctype taker(byte mark) {
    byte made, found;
    bool covered;
    covered = (window != NONE);
    do
    :: covered -> break
    :: else ->
        acquire();
#ifdef BUG_NO_SECOND_LOOK
        open_window();
#else
        if
        :: window != NONE -> covered = true
        :: else -> open_window()
        fi;
#endif
        release()
    od;
    /* page_map_set_superslab() */
    found = window;
    assert(found != NONE && complete[found]);
    atomic { superslab[found] = superslab[found] | mark }
}

proctype reader() {
    byte found, round;
    for (round : 1 .. 2) {
        found = window;
        if
        :: found != NONE -> assert(complete[found])
        :: else -> skip
        fi
    }
}

init {
    atomic { run taker(1); run taker(2); run reader() }
    _nr_pr == 1;
    assert(superslab[window] == 3)
}
