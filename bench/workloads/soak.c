/* soak: a server's heap, for hours. A table of blocks of Pareto sizes lies in shelves. A thread takes a
 * shelf that no other has, replaces as many of its blocks, at random, as it has slots, and leaves it: with two threads
 * about a third of what it frees there comes from the other. Nine shelves in ten are taken from a
 * tenth of them (short lives), the others from all (long ones); where another thread has the shelf, it
 * is any. Live bytes stay the same: RSS or throughput that drifts is the allocator's. One line per
 * --interval-ms: {"at_ms", "ms", "ops", "rss_bytes"}: CLOCK_MONOTONIC, and time and ops counted from the start; the
 * result line comes last. Who stops the process for a while (SIGSTOP) finds that in an interval that took longer. Ends
 * after --ops, or after --ms if given. --slots is cut to whole shelves, --warm lengthened to them.
 * Each thread stays on a processor, so that whether they share one is not the scheduler's choice.
 *
 * Two positive controls for whoever judges the lines: --leak forgets that many bytes per second, and
 * --slowdown makes the throughput fall in a straight line, by that many percent at the end of --ms. */
#include "frame.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <time.h>

enum { SHELF_SLOTS = 256, HOT_ONE_IN = 10, HOT_PERCENT = 90, LEAKED_BLOCK_BYTES = 256 };

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

/* `taken`: acquire by who takes it, pairs with the release by who leaves it. */
struct shelf {
    struct frame_slot slots[SHELF_SLOTS];
    _Alignas(128) _Atomic bool taken;
};

struct member {
    uint64_t checksum;
    _Alignas(128) _Atomic uint64_t ops; /* relaxed: a count for the interval lines */
};

static struct {
    const struct frame_options *options;
    struct shelf *shelves;
    size_t shelf_count;
    struct member *members;
    uint64_t ops_each, start_ns;
    _Atomic unsigned running; /* release by a thread that ends, pairs with main's acquire */
    _Atomic bool stop;        /* relaxed: seen at the next look */
} plan;

/* The numbers of one thread: those that choose shelves depend on what others hold, those of the
 * operations on the options alone, and with them the checksum. */
struct streams {
    struct frame_random shelves, operations;
};

static struct streams streams_make(unsigned index) {
    const unsigned count = plan.options->thread_count + 1;
    return (struct streams){.shelves = frame_random_make(plan.options->seed, count + index),
                            .operations = frame_random_make(plan.options->seed, index)};
}

/* A shelf for the caller alone. */
static struct shelf *shelf_take(struct frame_random *random) {
    bool hot = frame_random_below(frame_random_next(random) >> 32, 100) < HOT_PERCENT;
    for (;;) {
        const size_t count = hot ? plan.shelf_count / HOT_ONE_IN : plan.shelf_count;
        const uint64_t bits = frame_random_next(random);
        struct shelf *shelf = &plan.shelves[frame_random_below(bits, count)];
        if (!atomic_exchange_explicit(&shelf->taken, true, memory_order_acquire)) {
            return shelf;
        }
        hot = false;
    }
}

static void shelf_leave(struct shelf *shelf) {
    atomic_store_explicit(&shelf->taken, false, memory_order_release);
}

/* Replaces blocks of one shelf; returns their share of the checksum. */
static uint64_t operations_run(struct streams *streams, uint64_t ops) {
    uint64_t checksum = 0;
    struct shelf *shelf = shelf_take(&streams->shelves);
    for (uint64_t i = 0; i < ops; i++) {
        const uint64_t bits = frame_random_next(&streams->operations);
        struct frame_slot *slot = &shelf->slots[frame_random_below(bits, SHELF_SLOTS)];
        checksum += frame_drop_all(slot, 1, plan.options->check);
        frame_take(slot, frame_bytes_pick(plan.options, bits), frame_random_mix(bits));
    }
    shelf_leave(shelf);
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
    struct streams streams = streams_make(index);
    frame_floor_circle(2 * plan.options->slot_count * frame_bytes_mean(plan.options));
    for (uint64_t done = 0; done < plan.ops_each;) {
        if (atomic_load_explicit(&plan.stop, memory_order_relaxed)) {
            break;
        }
        const uint64_t left = plan.ops_each - done;
        const uint64_t ops = left < SHELF_SLOTS ? left : SHELF_SLOTS;
        const uint64_t since_ns = slowdown_percent > 0 ? frame_now_ns() : 0;
        member->checksum += operations_run(&streams, ops);
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
    text_add(&text,
             "{\"at_ms\":%" PRIu64 ",\"ms\":%" PRIu64 ",\"ops\":%" PRIu64 ",\"rss_bytes\":%" PRIu64
             "}",
             plan.start_ns / 1000000 + ms, ms, ops_sum(), frame_rss_exact());
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
        .slot_count = 200 * SHELF_SLOTS,
        .bytes_min = 16,
        .bytes_max = 65536,
        .thread_count = 2,
        .sizes = FRAME_PARETO,
    };
    frame_options_parse(&options, argc, argv);
    plan.shelf_count = options.slot_count / SHELF_SLOTS;
    if (interval_ms == 0 || plan.shelf_count < HOT_ONE_IN ||
        plan.shelf_count <= options.thread_count || (slowdown_percent > 0 && duration_ms == 0) ||
        slowdown_percent > 99) {
        frame_fail("soak: an interval; slots for 10 shelves of 256, and for more than there are "
                   "threads; a slowdown up to 99 percent needs --ms");
    }
    plan.options = &options;
    plan.shelves = frame_map(plan.shelf_count * sizeof *plan.shelves);
    plan.members = frame_map(options.thread_count * sizeof *plan.members);
    plan.ops_each = options.ops / options.thread_count;
    plan.running = options.thread_count;
    struct streams streams = streams_make(options.thread_count);
    frame_floor_circle(2 * options.slot_count * frame_bytes_mean(&options));
    uint64_t checksum = 0;
    for (uint64_t done = 0; done < options.warm_ops; done += SHELF_SLOTS) {
        checksum += operations_run(&streams, SHELF_SLOTS);
    }
    plan.start_ns = frame_now_ns();
    frame_threads_run(options.thread_count + 1, worker_or_watch, NULL);
    frame_stop();
    for (unsigned i = 0; i < options.thread_count; i++) {
        checksum += plan.members[i].checksum;
    }
    for (size_t i = 0; i < plan.shelf_count; i++) {
        checksum += frame_drop_all(plan.shelves[i].slots, SHELF_SLOTS, options.check);
    }
    frame_report(&options, ops_sum(), checksum);
    return 0;
}
