/* soak: a server's heap, for hours. Threads replace blocks of Pareto sizes in a table that all of
 * them share: nine operations in ten hit a tenth of the table (short lives), the others any slot
 * (long ones), and about half of the frees come from another thread. Live bytes stay the same: RSS or
 * throughput that drifts is the allocator's. One line per --interval-ms: {"ms", "ops", "rss_bytes"},
 * ops counted from the start; the result line comes last. Ends after --ops, or after --ms if given.
 * Each thread stays on a processor: two on one pass fewer lines of the table around, and whether they
 * share one shall not be the scheduler's.
 *
 * Two positive controls for whoever judges the lines: --leak forgets that many bytes per second, and
 * --slowdown makes the throughput fall in a straight line, by that many percent at the end of --ms. */
#include "exchange.h"

#include <inttypes.h>
#include <time.h>

enum { OPS_PER_LOOK = 256, HOT_ONE_IN = 10, HOT_PERCENT = 90, LEAKED_BLOCK_BYTES = 256 };

static uint64_t duration_ms = 0, interval_ms = 1000, leak_bytes = 0, slowdown_percent = 0;

static const struct frame_workload soak = {
    .name = "soak",
    .unit = "blocks replaced",
    .own = (const struct frame_own_option[]){{"--ms", &duration_ms},
                                             {"--interval-ms", &interval_ms},
                                             {"--leak", &leak_bytes},
                                             {"--slowdown", &slowdown_percent},
                                             {NULL, NULL}},
};

struct member {
    uint64_t checksum;
    _Alignas(128) _Atomic uint64_t ops; /* relaxed: a count for the interval lines */
};

static struct {
    const struct frame_options *options;
    struct exchange_slot *slots;
    struct member *members;
    uint64_t ops_each, start_ns;
    _Atomic unsigned running; /* release by a thread that ends, pairs with main's acquire */
    _Atomic bool stop;        /* relaxed: seen at the next look */
} plan;

static uint64_t block_replace(size_t slot, uint64_t bits) {
    struct frame_slot own;
    frame_take(&own, frame_bytes_pick(plan.options, bits), frame_random_mix(bits));
    exchange_swap(&plan.slots[slot], &own);
    return frame_drop_all(&own, 1, plan.options->check);
}

static uint64_t operations_run(struct frame_random *random, uint64_t ops) {
    const size_t count = plan.options->slot_count;
    uint64_t checksum = 0;
    for (uint64_t i = 0; i < ops; i++) {
        const uint64_t bits = frame_random_next(random);
        const bool hot = frame_random_below(frame_random_mix(bits) >> 32, 100) < HOT_PERCENT;
        const size_t slot = hot ? frame_random_below(bits, count / HOT_ONE_IN) * HOT_ONE_IN
                                : frame_random_below(bits, count);
        checksum += block_replace(slot, bits);
    }
    return checksum;
}

/* --slowdown: what was done since `since_ns` shall have taken longer. */
static void slow_down(uint64_t since_ns) {
    const uint64_t now_ns = frame_now_ns();
    const double elapsed_ms = (double)(now_ns - plan.start_ns) / 1e6;
    const double lost = (double)slowdown_percent / 100 * elapsed_ms / (double)duration_ms;
    const double longer = lost < 0.99 ? 1 / (1 - lost) : 100;
    const uint64_t end_ns = since_ns + (uint64_t)((double)(now_ns - since_ns) * longer);
    while (frame_now_ns() < end_ns) {
        frame_relax();
    }
}

static void worker(unsigned index, void *argument) {
    (void)argument;
    struct member *member = &plan.members[index];
    frame_pin(index);
    struct frame_random random = frame_random_make(plan.options->seed, index);
    frame_floor_circle(2 * plan.options->slot_count * frame_bytes_mean(plan.options));
    for (uint64_t done = 0; done < plan.ops_each;) {
        if (atomic_load_explicit(&plan.stop, memory_order_relaxed)) {
            break;
        }
        const uint64_t left = plan.ops_each - done;
        const uint64_t ops = left < OPS_PER_LOOK ? left : OPS_PER_LOOK;
        const uint64_t since_ns = slowdown_percent > 0 ? frame_now_ns() : 0;
        member->checksum += operations_run(&random, ops);
        if (slowdown_percent > 0) {
            slow_down(since_ns);
        }
        done += ops;
        atomic_store_explicit(&member->ops, done, memory_order_relaxed);
    }
    atomic_fetch_sub_explicit(&plan.running, 1, memory_order_release);
}

static uint64_t ops_sum(void) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < plan.options->thread_count; i++) {
        sum += atomic_load_explicit(&plan.members[i].ops, memory_order_relaxed);
    }
    return sum;
}

static void interval_write(uint64_t ms) {
    char buffer[128];
    struct text text = text_in(buffer, sizeof buffer);
    text_add(&text, "{\"ms\":%" PRIu64 ",\"ops\":%" PRIu64 ",\"rss_bytes\":%" PRIu64 "}", ms,
             ops_sum(), frame_rss_exact());
    frame_write(&text);
}

/* --leak: forgets what is due after `ms`, less what was already forgotten. */
static uint64_t bytes_forget(uint64_t ms, uint64_t forgotten) {
    while (forgotten + LEAKED_BLOCK_BYTES <= leak_bytes * ms / 1000) {
        unsigned char *block = malloc(LEAKED_BLOCK_BYTES);
        if (block == NULL) {
            frame_fail_empty(LEAKED_BLOCK_BYTES);
        }
        memset(block, 1, LEAKED_BLOCK_BYTES);
        forgotten += LEAKED_BLOCK_BYTES;
    }
    return forgotten;
}

/* Beside the threads that work: waits from line to line, on a grid, until they end or are told to. A
 * line that comes late is followed by the next point of the grid that is still to come, so that none
 * is about no time at all. */
static void watch(void) {
    uint64_t forgotten = 0, ms = 0;
    while (atomic_load_explicit(&plan.running, memory_order_acquire) > 0) {
        const uint64_t due_ns = plan.start_ns + (ms / interval_ms + 1) * interval_ms * 1000000;
        const struct timespec due = {(time_t)(due_ns / 1000000000), (long)(due_ns % 1000000000)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
        ms = (frame_now_ns() - plan.start_ns) / 1000000;
        forgotten = bytes_forget(ms, forgotten);
        interval_write(ms);
        if (duration_ms > 0 && ms >= duration_ms) {
            atomic_store_explicit(&plan.stop, true, memory_order_relaxed);
            break;
        }
    }
}

static void worker_or_watch(unsigned index, void *argument) {
    if (index < plan.options->thread_count) {
        worker(index, argument);
    } else {
        watch();
    }
}

int main(int argc, char **argv) {
    struct frame_options options = {
        .workload = &soak,
        .seed = 73,
        .ops = UINT64_MAX,
        .warm_ops = 1000000,
        .slot_count = 50000,
        .bytes_min = 16,
        .bytes_max = 65536,
        .thread_count = 2,
        .sizes = FRAME_PARETO,
    };
    frame_options_parse(&options, argc, argv);
    if (interval_ms == 0 || options.slot_count < HOT_ONE_IN ||
        (slowdown_percent > 0 && duration_ms == 0) || slowdown_percent > 99) {
        frame_fail("soak: an interval, at least 10 slots; a slowdown up to 99 percent needs --ms");
    }
    plan.options = &options;
    plan.slots = frame_map(options.slot_count * sizeof *plan.slots);
    plan.members = frame_map(options.thread_count * sizeof *plan.members);
    plan.ops_each = options.ops / options.thread_count;
    plan.running = options.thread_count;
    struct frame_random random = frame_random_make(options.seed, options.thread_count);
    frame_floor_circle(2 * options.slot_count * frame_bytes_mean(&options));
    uint64_t checksum = operations_run(&random, options.warm_ops);
    plan.start_ns = frame_now_ns();
    frame_threads_run(options.thread_count + 1, worker_or_watch, NULL);
    frame_stop();
    for (unsigned i = 0; i < options.thread_count; i++) {
        checksum += plan.members[i].checksum;
    }
    checksum += exchange_drop_all(plan.slots, options.slot_count, options.check);
    frame_report(&options, ops_sum(), checksum);
    return 0;
}
