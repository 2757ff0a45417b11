// What the learner decides of memory itself: pure functions, as in policy.h.
//
// Huge pages: a superslab asks for them while nearly all of the memory in use in such as have none is resident: they
// then cost no memory, and a fault for each 4 KiB becomes one for each 2 MiB. Programs with medium blocks that they
// touch in part do not get them. It takes more to begin than to go on, and each end doubles the superslabs until the next
// beginning. It ends as well where the first touch of a huge page took HUGE_PAGE_SLOW_NS;
// told of such a touch during a pause, it only waits one superslab longer.
//
// Delay: free pages inside the slabs of a heap go back after a 64th of slab_purge_delay_ms at first. Where what went so
// is wanted again, more than a sixteenth of it, and that takes more of its thread's processor time than refault_permille,
// the delay doubles, up to the option's. It is halved after 32 rounds without; each
// doubling makes that twice as many, so that a program whose demand comes in waves pays ever more seldom.
//
// Empty runs of all heaps are under the same rule, with the processor time of the process, and a sixteenth of purge_delay_ms at first.
//
// Excess: free memory that was given back for being too much, and is wanted again soon, raises the bound by as much: the
// demand comes in waves. The raise falls by an eighth whenever free memory has aged for purge_delay_ms. The
// log has a decision where the bound has changed by a quarter since the last one, or is what it was before.
#pragma once

#include "control/policy.h"
#include "space/excess.h"
#include "space/purge_delay.h"
#include "space/space_hooks.h"

// What is remembered of all superslabs; zeros at first.
struct policy_growth {
    bool asks;
    struct policy_pause pause;
};

// Whether the superslab asks. *decision is what changed with it; .knob 0: nothing did.
bool policy_growth(struct policy_growth *state, const struct growth_signals *signals,
                   struct policy_decision *decision);

// `bound_bytes`: the bound when memory was given back. `refault_bytes`: as of refault_hook. False: nothing is worth noting.
// Of which memory the bound is, the caller adds to the decision.
bool policy_excess(struct excess_raise *raise, uint64_t bound_bytes, uint64_t refault_bytes,
                   struct policy_decision *decision);

// As a round over a heap's slabs or the empty runs begins, before what it purges is added to delay->early_bytes. The shortest delay is
// `early_part` of the longest, which comes at once where most of little was wanted again a few times. `affordable_bytes`: what
// of them may be wanted again since the last such round before which some was; where nothing is, or the delay is the longest, it
// does not matter. False: the delay stays.
bool policy_delay(struct purge_delay *delay, unsigned early_part, uint64_t most_ms,
                  uint64_t affordable_bytes, struct policy_decision *decision);
