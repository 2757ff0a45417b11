#include "control/policy_memory.h"

#include "base/bits.h"
#include "space/huge_pages.h"

// Bytes resident of 1000 in use, to begin with huge pages and to go on.
#define BEGIN_PERMILLE 938
#define CONTINUE_PERMILLE 875
#define PAUSE_SUPERSLABS 1
#define PAUSE_SUPERSLABS_MAX 4096
// What a raise loses at each decay.
#define DECAY_PART 8
// Of what was purged early, what may be wanted again; what is forgotten with each round.
#define REFAULT_PART 16
#define FORGOTTEN_PART 8
#define CALM_ROUNDS 32
#define CALM_ROUNDS_MAX 8192
// Where most of so little comes back, round after round, it is not worth the calls that it takes
// (docs/decisions/0082-little-that-comes-back.md).
#define LITTLE_BYTES (256 * KIB)
#define VAIN_ROUNDS 3
// A change of the bound by this part is worth noting.
#define NOTED_PART 4

static uint64_t resident_permille(const struct growth_signals *signals) {
    // In pages, so that no figure overflows.
    const uint64_t used = signals->used_bytes >> 12;
    return used == 0 ? 0 : (signals->resident_bytes >> 12) * 1000 / used;
}

bool policy_growth(struct policy_growth *state, const struct growth_signals *signals,
                   struct policy_decision *decision) {
    const uint64_t permille = resident_permille(signals);
    const bool before = state->asks;
    const bool is_slow = signals->touch_ns >= HUGE_PAGE_SLOW_NS;
    if (is_slow) {
        state->asks = false;
    } else if (state->pause.left != 0) {
        state->pause.left--;
    } else {
        state->asks = permille >= (before ? CONTINUE_PERMILLE : BEGIN_PERMILLE);
    }
    if (before && !state->asks) {
        policy_pause_more(&state->pause, PAUSE_SUPERSLABS, PAUSE_SUPERSLABS_MAX);
    }
    *decision = (struct policy_decision){0};
    if (before != state->asks) {
        *decision = (struct policy_decision){POLICY_KNOB_huge_pages,
                                             SIZE_CLASS_COUNT,
                                             before,
                                             state->asks,
                                             is_slow ? POLICY_SIGNAL_touch : POLICY_SIGNAL_resident,
                                             is_slow ? signals->touch_ns : permille};
    }
    return state->asks;
}

static void raise_bound(struct excess_raise *raise, uint64_t bound_bytes, uint64_t refault_bytes) {
    if (raise->bytes == 0) {
        raise->start_bytes = raise->noted_bytes = bound_bytes;
    }
    const uint64_t from = greatest_u64(raise->bytes, bound_bytes);
    raise->bytes = from + least_u64(refault_bytes, UINT64_MAX - from);
}

static void lower_bound(struct excess_raise *raise) {
    raise->bytes -= (raise->bytes + DECAY_PART - 1) / DECAY_PART;
    if (raise->bytes <= raise->start_bytes) {
        raise->bytes = 0;
    }
}

static bool is_worth_noting(const struct excess_raise *raise, uint64_t bound_bytes) {
    const uint64_t noted = raise->noted_bytes;
    const uint64_t change = bound_bytes > noted ? bound_bytes - noted : noted - bound_bytes;
    return change != 0 && (change >= noted / NOTED_PART || raise->bytes == 0);
}

bool policy_excess(struct excess_raise *raise, uint64_t bound_bytes, uint64_t refault_bytes,
                   struct policy_decision *decision) {
    if (refault_bytes != 0) {
        raise_bound(raise, bound_bytes, refault_bytes);
    } else {
        lower_bound(raise);
    }
    const uint64_t bound_now = raise->bytes == 0 ? raise->start_bytes : raise->bytes;
    if (!is_worth_noting(raise, bound_now)) {
        return false;
    }
    *decision = (struct policy_decision){POLICY_KNOB_excess_bytes, SIZE_CLASS_COUNT,
                                         raise->noted_bytes,       bound_now,
                                         POLICY_SIGNAL_refault,    refault_bytes};
    raise->noted_bytes = bound_now;
    return true;
}

static bool is_costly(const struct purge_delay *delay, uint64_t refault_bytes,
                      uint64_t affordable_bytes) {
    return refault_bytes > delay->early_bytes / REFAULT_PART && refault_bytes > affordable_bytes;
}

// Whether the rounds were in vain, by those after which something was wanted again.
static bool is_in_vain(struct purge_delay *delay, uint64_t refault_bytes) {
    if (refault_bytes == 0) {
        return false;
    }
    if (delay->early_bytes <= LITTLE_BYTES && refault_bytes > delay->early_bytes / 2) {
        delay->vain_rounds++;
    } else if (delay->vain_rounds != 0) {
        delay->vain_rounds--;
    }
    if (delay->vain_rounds < VAIN_ROUNDS) {
        return false;
    }
    delay->vain_rounds = 0;
    return true;
}

bool policy_delay(struct purge_delay *delay, unsigned early_part, uint64_t most_ms,
                  uint64_t affordable_bytes, struct policy_decision *decision) {
    const uint64_t least_ms = greatest_u64(most_ms / early_part, 1);
    const uint64_t from = purge_delay_learned_ms(delay, early_part, most_ms);
    const uint64_t refault_bytes = least_u64(delay->refault_bytes, delay->early_bytes);
    uint64_t to = from;
    // At the longest nothing goes early any more, so that what is wanted again is no fault of the delay.
    const bool is_early = from < most_ms;
    const bool in_vain = is_early && is_in_vain(delay, refault_bytes);
    if (in_vain || (is_early && is_costly(delay, refault_bytes, affordable_bytes))) {
        to = in_vain ? most_ms : 2 * from;
        delay->calm_length = (uint16_t)least_u64(
            delay->calm_length == 0 ? CALM_ROUNDS : 2 * delay->calm_length, CALM_ROUNDS_MAX);
        delay->calm_rounds = delay->calm_length;
    } else if (delay->calm_rounds != 0) {
        delay->calm_rounds--;
    } else {
        to = from / 2;
        delay->calm_rounds = delay->calm_length;
    }
    delay->ms = (uint32_t)least_u64(greatest_u64(to, least_ms), most_ms);
    delay->early_bytes -= refault_bytes;
    delay->early_bytes -= delay->early_bytes / FORGOTTEN_PART;
    delay->refault_bytes = 0;
    if (delay->ms == from) {
        return false;
    }
    *decision =
        (struct policy_decision){POLICY_KNOB_slab_purge_delay_ms, SIZE_CLASS_COUNT, from, delay->ms,
                                 POLICY_SIGNAL_refault,           refault_bytes};
    return true;
}
