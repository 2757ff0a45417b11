/* The lock of src/os/lock.c: 0 free, 1 held, 2 held and somebody may sleep. Two threads lock and unlock
 * twice, a third one tries. One holds at a time, and nobody sleeps for ever: a sleeper that nobody wakes
 * is an invalid end state.
 *
 * planted: BUG_SLEEPER_TAKES_1 BUG_WAIT_WITHOUT_COMPARE BUG_RELEASE_IN_TWO_STEPS BUG_WAKE_BEFORE_RELEASE
 */

#define THREADS 3

byte state;
byte holders;
bool asleep[THREADS];

/* The kernel compares and puts to sleep in one step. */
inline futex_wait(expected) {
    atomic {
        if
#ifdef BUG_WAIT_WITHOUT_COMPARE
        :: true -> asleep[_pid] = true
#else
        :: state == expected -> asleep[_pid] = true
        :: else -> skip
#endif
        fi
    }
    !asleep[_pid]
}

inline futex_wake_one() {
    atomic {
        if
        :: asleep[0] -> asleep[0] = false
        :: asleep[1] -> asleep[1] = false
        :: asleep[2] -> asleep[2] = false
        :: else -> skip
        fi
    }
}

/* lock_acquire(): a compare-and-swap from 0 to 1, else lock_acquire_slow(). */
inline acquire() {
    atomic {
        taken = (state == 0);
        if
        :: taken -> state = 1
        :: else -> skip
        fi
    }
    do
    :: taken -> break
    :: else ->
        atomic {
#ifdef BUG_SLEEPER_TAKES_1
            before = state;
            if
            :: state == 0 -> state = 1
            :: else -> state = 2
            fi;
#else
            before = state;
            state = 2;
#endif
        }
        if
        :: before == 0 -> break
        :: else -> futex_wait(2)
        fi
    od;
    holders++;
    assert(holders == 1)
}

/* lock_try_acquire() */
inline try_acquire() {
    atomic {
        taken = (state == 0);
        if
        :: taken -> state = 1; holders++; assert(holders == 1)
        :: else -> skip
        fi
    }
}

/* lock_release(): an exchange with 0, and a wake when somebody may sleep. */
inline release() {
    holders--;
#ifdef BUG_RELEASE_IN_TWO_STEPS
    before = state;
    state = 0;
#else
#ifdef BUG_WAKE_BEFORE_RELEASE
    if
    :: state == 2 -> futex_wake_one()
    :: else -> skip
    fi;
    before = 0;
    state = 0;
#else
    atomic { before = state; state = 0 }
#endif
#endif
    if
    :: before == 2 -> futex_wake_one()
    :: else -> skip
    fi
}

active [2] proctype locker() {
    byte before, round;
    bool taken;
    for (round : 1 .. 2) {
        acquire();
        release()
    }
}

/* Harvests: a lock that is not free is passed by. */
active proctype trier() {
    byte before, round;
    bool taken;
    for (round : 1 .. 2) {
        try_acquire();
        if
        :: taken -> release()
        :: else -> skip
        fi
    }
    acquire();
    release()
}
