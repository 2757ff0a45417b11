// What the learner decides of threads that follow one another: a pure function, as in policy.h.
//
// A thread of a short life leaves its cached blocks to the next one while most threads that end have a successor soon: of
// 16 three quarters to begin with, half to go on. Each end doubles the threads until the next beginning.
#pragma once

#include "control/policy.h"

// What is remembered of all threads; zeros at first.
struct policy_succession {
    bool keeps;
    uint8_t seen, soon;  // threads that ended in this window; those that had a successor soon
    struct policy_pause pause;
};

// Told of each thread that ended whether the next one came soon. Returns whether threads leave their blocks from now on.
// *decision is what changed with it; .knob 0: nothing did.
bool policy_succession(struct policy_succession *state, bool was_soon,
                       struct policy_decision *decision);
