/* A slab that moves to another heap while others free its blocks (src/heap/heap.c: heap_move_slab,
 * heap_publish, heap_collect; src/thread/migration.c). The freer reads the slab's heap, sets the bit, then the
 * summary, then pushes the slab on the list of the heap it has read, which may be the former one by then;
 * that one's collector hands the announcement on.
 *
 * One slab with three blocks out in two words, freed by two threads and by heap 1's owner, who still takes
 * the slab for its own. A thread with heap 2 moves the slab under both locks, whenever it gets the second
 * one; it never waits for it. Both heaps are collected until nothing is left.
 *
 * Checked: the slab is on one list of remote frees at most, one heap files it, no block comes back twice,
 * all blocks are back at the end, in the heap that has the slab.
 *
 * planted: BUG_ONE_LOCK BUG_NOT_HANDED_ON BUG_PUT_UNCHECKED
 */

byte owner_of = 1;      /* slab->heap */
byte filed_in = 1;      /* whose bin it is in */
byte lock[3];
byte free_bits[2];
byte remote_bits[2];
byte summary;
bit list[3];            /* heap->remote_slabs: the slab is there */
bool linked;
byte running = 4;       /* threads that free, and the one that moves */

inline acquire(heap) { atomic { lock[heap] == 0 -> lock[heap] = 1 } }
inline release(heap) { lock[heap] = 0 }

inline push(heap) {
    assert(!linked);
    d_step { linked = true; assert(!list[heap]); list[heap] = 1 }
}

inline publish(word, bits) {
    seen_owner = owner_of;
    atomic { before = remote_bits[word]; remote_bits[word] = remote_bits[word] | bits }
    assert((before & bits) == 0);
    if
    :: before == 0 ->
        atomic { before = summary; summary = summary | (1 << word) }
        if
        :: before == 0 -> push(seen_owner)
        :: else -> skip
        fi
    :: else -> skip
    fi
}

/* put_bits(): under the lock of the heap that files the slab. */
inline put(heap, word, bits) {
    d_step {
        assert(filed_in == heap && (free_bits[word] & bits) == 0);
        free_bits[word] = free_bits[word] | bits
    }
}

/* heap_collect(): the heap's lock is held. */
inline collect(heap) {
    atomic { taken = list[heap]; list[heap] = 0 }
    if
    :: taken ->
        linked = false;
        atomic { seen = summary; summary = 0 }
        if
        :: owner_of == heap ->
            if
            :: seen & 1 -> atomic { bits = remote_bits[0]; remote_bits[0] = 0 } put(heap, 0, bits)
            :: else -> skip
            fi;
            if
            :: seen & 2 -> atomic { bits = remote_bits[1]; remote_bits[1] = 0 } put(heap, 1, bits)
            :: else -> skip
            fi
        :: else ->
#ifndef BUG_NOT_HANDED_ON
            atomic { before = summary; summary = summary | seen }
            if
            :: before == 0 -> push(owner_of)
            :: else -> skip
            fi
#else
            skip
#endif
        fi
    :: else -> skip
    fi
}

proctype freer(byte word; byte bits) {
    byte seen_owner, before;
    publish(word, bits);
    running--
}

/* Heap 1's owner flushes a block of its magazine (heap_put), and collects at times. */
proctype owner() {
    byte seen_owner, before, seen, bits;
    bit taken;
    acquire(1);
    collect(1);
#ifdef BUG_PUT_UNCHECKED
    put(1, 0, 2);
#else
    if
    :: owner_of == 1 -> put(1, 0, 2)
    :: else -> publish(0, 2)
    fi;
#endif
    release(1);
    running--
}

proctype mover() {
    acquire(2);
    if
#ifdef BUG_ONE_LOCK
    :: true ->
#else
    :: atomic { lock[1] == 0 -> lock[1] = 1 }
#endif
        if
        :: filed_in == 1 -> filed_in = 2; owner_of = 2
        :: else -> skip
        fi;
#ifndef BUG_ONE_LOCK
        release(1)
#endif
    :: true -> skip  /* somebody holds it */
    fi;
    release(2);
    running--
}

/* A harvester of both heaps, and at the end what is left. */
proctype harvester() {
    byte before, seen, bits, rounds;
    bit taken;
    do
    :: rounds < 2 && running > 0 -> acquire(1); collect(1); release(1); acquire(2); collect(2); release(2); rounds++
    :: running == 0 -> break
    od;
    acquire(1); collect(1); release(1);
    acquire(2); collect(2); release(2);
    acquire(1); collect(1); release(1);
    assert(free_bits[0] == 3 && free_bits[1] == 1);
    assert(remote_bits[0] == 0 && remote_bits[1] == 0 && summary == 0 && !linked);
    assert(owner_of == filed_in)
}

init {
    atomic { run freer(0, 1); run freer(1, 1); run owner(); run mover(); run harvester() }
}
