#include "space/excess.h"

#include "base/bits.h"
#include "config/options.h"
#include "os/os.h"
#include "space/space_hooks.h"

// What is in use may be addresses alone, a table of gigabytes of which little was touched: of that an eighth is no more than so many
// times excess_bytes.
#define EIGHTH_MOST_TIMES 8

uint64_t excess_bound(const struct excess *excess, uint64_t used_bytes, uint64_t least_bytes) {
    const uint64_t eighth_bytes =
        least_u64(used_bytes / 8, EIGHTH_MOST_TIMES * option_live(excess_bytes));
    const uint64_t static_bytes = greatest_u64(least_bytes, eighth_bytes);
    return option_live(learn) == 0 ? static_bytes : greatest_u64(static_bytes, excess->raise.bytes);
}

static void tell(struct excess *excess, uint64_t refault_bytes) {
    refault_hook *hook = atomic_load_relaxed(&space_hooks.refault);
    if (hook != NULL) {
        hook(excess, refault_bytes);
    }
}

// Given back so long ago that it was right.
static void forget_old(struct excess *excess, uint64_t now_ms) {
    if (os_is_long_ago(excess->dropped_ms, option_live(purge_delay_ms), now_ms)) {
        excess->dropped_bytes = 0;
    }
}

void excess_dropped(struct excess *excess, uint64_t bytes, uint64_t bound_bytes) {
    const uint64_t now_ms = os_clock_ms_locked();
    forget_old(excess, now_ms);
    excess->dropped_bytes += bytes;
    excess->dropped_ms = now_ms;
    excess->bound_bytes = bound_bytes;
}

void excess_needed_slow(struct excess *excess, uint64_t bytes) {
    forget_old(excess, os_clock_ms_locked());
    const uint64_t early_bytes = least_u64(bytes, excess->dropped_bytes);
    excess->dropped_bytes -= early_bytes;
    if (early_bytes != 0) {
        tell(excess, early_bytes);
    }
}

void excess_decay(struct excess *excess) {
    excess->accepted_bytes -= excess->accepted_bytes / 8;
    if (excess->raise.bytes != 0) {
        tell(excess, 0);
    }
}
