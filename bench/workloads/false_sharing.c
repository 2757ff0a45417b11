/* false_sharing: threads write to small blocks of their own, and are slow when an allocator puts two
 * of them into one cache line (Berger, McKinley, Blumofe, Wilson, "Hoard", ASPLOS 2000).
 * Active: each thread allocates its blocks itself (Hoard's cache-thrash). Passive: the first blocks
 * are neighbours, allocated by one thread and handed out; who frees one and gets it back by its next
 * malloc keeps sharing the line (cache-scratch). `rounds` writes fall on each block. Where the CPUs are
 * hardware threads of one core, sharing costs no time: `extra.shared_line_percent` tells what share of
 * the blocks looked at lay in one line with another thread's. */
#include "frame.h"

#include <stdatomic.h>

enum { ACTIVE, PASSIVE };
enum { LINE_BYTES = 64, LOOK_ONE_IN = 64 };

static const struct frame_workload false_sharing = {
    .name = "false_sharing",
    .unit = "blocks written and freed",
    .variants = (const char *const[]){"active", "passive", NULL},
};

/* The block that a thread writes to now. */
struct current {
    _Alignas(128) _Atomic uintptr_t block; /* relaxed: a sample for statistics */
};

struct plan {
    const struct frame_options *options;
    struct frame_slot *handed; /* passive: each thread's first block */
    struct current *currents;
    /* All relaxed; read when the threads have been joined. */
    _Atomic uint64_t checksum, looked_count, shared_count;
};

static bool line_shared(const struct plan *plan, unsigned index, uintptr_t block) {
    for (unsigned i = 0; i < plan->options->thread_count; i++) {
        const uintptr_t other =
            atomic_load_explicit(&plan->currents[i].block, memory_order_relaxed);
        if (i != index && other / LINE_BYTES == block / LINE_BYTES) {
            return true;
        }
    }
    return false;
}

/* Counts the block's first word up, each step in memory, and undoes it for the comparison. */
static void block_write(const struct frame_slot *slot, uint64_t writes) {
    volatile uint64_t *word = (volatile uint64_t *)(void *)slot->block;
    for (uint64_t i = 0; i < writes; i++) {
        *word = *word + 1;
    }
    *word = *word - writes;
}

static void worker(unsigned index, void *argument) {
    struct plan *plan = argument;
    const struct frame_options *options = plan->options;
    struct frame_random random = frame_random_make(options->seed, index);
    struct frame_slot slot = plan->handed[index];
    uint64_t checksum = 0, looked = 0, shared = 0;
    frame_floor_circle(64 * options->bytes_max);
    for (uint64_t i = 0; i < options->ops / options->thread_count; i++) {
        if (slot.block == NULL) {
            const uint64_t bits = frame_random_next(&random);
            frame_take(&slot, frame_bytes_pick(options, bits), frame_random_mix(bits));
        }
        atomic_store_explicit(&plan->currents[index].block, (uintptr_t)slot.block,
                              memory_order_relaxed);
        if (i % LOOK_ONE_IN == LOOK_ONE_IN - 1) {
            looked++;
            shared += line_shared(plan, index, (uintptr_t)slot.block);
        }
        block_write(&slot, options->round_count);
        checksum += frame_drop(&slot, options->check);
    }
    atomic_fetch_add_explicit(&plan->checksum, checksum, memory_order_relaxed);
    atomic_fetch_add_explicit(&plan->looked_count, looked, memory_order_relaxed);
    atomic_fetch_add_explicit(&plan->shared_count, shared, memory_order_relaxed);
}

int main(int argc, char **argv) {
    struct frame_options options = {
        .workload = &false_sharing,
        .seed = 31,
        .ops = 400000,
        .warm_ops = 1,
        .bytes_min = 8,
        .bytes_max = 8,
        .round_count = 500,
        .thread_count = 2,
    };
    frame_options_parse(&options, argc, argv);
    struct plan plan = {.options = &options};
    struct frame_random random = frame_random_make(options.seed, options.thread_count);
    plan.handed = frame_map(options.thread_count * sizeof *plan.handed);
    plan.currents = frame_map(options.thread_count * sizeof *plan.currents);
    for (unsigned i = 0; options.variant == PASSIVE && i < options.thread_count; i++) {
        const uint64_t bits = frame_random_next(&random);
        frame_take(&plan.handed[i], frame_bytes_pick(&options, bits), frame_random_mix(bits));
    }
    frame_threads_run(options.thread_count, worker, &plan);
    frame_stop();
    if (plan.looked_count > 0) {
        frame_extra("shared_line_percent", plan.shared_count * 100 / plan.looked_count);
    }
    frame_report(&options, options.ops / options.thread_count * options.thread_count,
                 plan.checksum);
    return 0;
}
