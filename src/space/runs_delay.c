#include "space/runs_delay.h"

#include "os/os.h"
#include "space/space_hooks.h"

uint64_t runs_delay_ms(const struct runs_delay *delay) {
    const uint64_t most_ms = option_live(purge_delay_ms);
    if (option_live(learn) == 0 || option_live(refault_permille) == 0 ||
        atomic_load_relaxed(&space_hooks.runs_delay) == NULL) {
        return most_ms;
    }
    return least_u64(purge_delay_learned_ms(&delay->learned, RUNS_EARLY_PART, most_ms), most_ms);
}

enum runs_round runs_delay_begin(struct runs_delay *delay, uint64_t now_ms) {
    const uint64_t most_ms = option_live(purge_delay_ms);
    const uint64_t before_ms = runs_delay_ms(delay);
    delay_hook *hook = atomic_load_relaxed(&space_hooks.runs_delay);
    if (hook != NULL && option_live(learn) != 0) {
        hook(&delay->learned, most_ms);
    }
    const uint64_t after_ms = runs_delay_ms(delay);
    if (now_ms - delay->full_ms >= most_ms || before_ms >= most_ms) {
        delay->full_ms = now_ms;
        return RUNS_ROUND_FULL;
    }
    return after_ms > before_ms ? RUNS_ROUND_NONE : RUNS_ROUND_EARLY;
}

void runs_delay_end(struct runs_delay *delay, bool was_early, uint64_t now_ms) {
    if (!was_early) {
        delay->full_ms = now_ms;
    }
}

void runs_delay_purged(struct runs_delay *delay, uint64_t bytes) {
    if (bytes != 0) {
        delay->learned.early_bytes += bytes;
        // Not the tick's time: that is of another clock than what it is compared with.
        delay->early_ms = os_clock_ms_locked();
    }
}

void runs_delay_needed_slow(struct runs_delay *delay, uint64_t bytes) {
    if (os_is_long_ago(delay->early_ms, option_live(purge_delay_ms), os_clock_ms_locked())) {
        // By now it would have gone anyway.
        delay->learned.early_bytes = delay->learned.refault_bytes = 0;
    } else {
        delay->learned.refault_bytes += bytes;
    }
}
