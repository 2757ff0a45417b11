/* A reader outside of the process: lock_release() in src/os/lock.h, docs/INSPECT_ABI.md. Two threads change two words
 * that belong together, under a lock; the reader copies them without it. A copy of a lock that was free, and of the
 * same generation, before and after it is one that nobody changed meanwhile. Generations go modulo 2^32, and are
 * thought not to come round within one look.
 *
 * planted: BUG_NO_GENERATION BUG_STATE_ALONE BUG_BUMP_AFTER_RELEASE BUG_LOOK_AFTER_ONLY BUG_GENERATION_FIRST
 */

bool held;
byte generation;
byte first, second;     /* equal while nobody holds the lock */

active [2] proctype holder() {
    byte round;
    for (round : 1 .. 2) {
        atomic { !held -> held = true }
        first++;
        second++;
#ifdef BUG_BUMP_AFTER_RELEASE
        held = false;
        generation++
#else
#ifndef BUG_NO_GENERATION
        generation++;
#endif
        held = false
#endif
    }
}

active proctype reader() {
    bool held_before, held_after;
    byte generation_before, generation_after, copy_of_first, copy_of_second;
    byte look;
    for (look : 1 .. 2) {
        /* Both fields at once would do; else the state comes first. */
        held_before = held;
        generation_before = generation;
        copy_of_first = first;
        copy_of_second = second;
#ifdef BUG_LOOK_AFTER_ONLY
        held_before = false;
        generation_before = generation;
#endif
#ifdef BUG_GENERATION_FIRST
        generation_after = generation;
        held_after = held;
#else
        held_after = held;
        generation_after = generation;
#endif
#ifdef BUG_STATE_ALONE
        generation_before = generation_after;
#endif
        if
        :: !held_before && !held_after && generation_before == generation_after ->
            assert(copy_of_first == copy_of_second)
        :: else -> skip
        fi
    }
}
