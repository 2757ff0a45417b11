#include "control/policy_threads.h"

#define WINDOW_THREADS 16
// Of 1000 threads that ended, those that had a successor soon, to begin and to go on.
#define BEGIN_PERMILLE 750
#define CONTINUE_PERMILLE 500
#define PAUSE_WINDOWS 4
#define PAUSE_WINDOWS_MAX 4096

// After a window.
static bool decide(struct policy_succession *state, uint32_t permille) {
    if (state->pause.left != 0) {
        state->pause.left--;
        return false;
    }
    if (state->keeps && permille < CONTINUE_PERMILLE) {
        policy_pause_more(&state->pause, PAUSE_WINDOWS, PAUSE_WINDOWS_MAX);
    }
    return permille >= (state->keeps ? CONTINUE_PERMILLE : BEGIN_PERMILLE);
}

bool policy_succession(struct policy_succession *state, bool was_soon,
                       struct policy_decision *decision) {
    *decision = (struct policy_decision){0};
    state->soon += was_soon;
    if (++state->seen < WINDOW_THREADS) {
        return state->keeps;
    }
    const uint32_t permille = state->soon * 1000U / WINDOW_THREADS;
    const bool before = state->keeps;
    state->keeps = decide(state, permille);
    state->seen = state->soon = 0;
    if (before != state->keeps) {
        *decision = (struct policy_decision){
            POLICY_KNOB_thread_blocks, SIZE_CLASS_COUNT, before, state->keeps,
            POLICY_SIGNAL_successors,  permille};
    }
    return state->keeps;
}
