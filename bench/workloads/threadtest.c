/* threadtest: each thread takes as many blocks of one size as it has slots, then frees them in the order in which they
 * came, over and over (after Hoard's; Berger and others, ASPLOS 2000). No block changes hands: what is measured is how
 * blocks come and go in bulk, beyond what any cache of theirs holds, and whether threads wait for one another. */
#include "frame.h"

static const struct frame_workload threadtest = {
    .name = "threadtest",
    .unit = "blocks taken and freed",
};

struct member {
    struct frame_slot *slots;
    struct frame_random random;
    uint64_t checksum;
};

struct plan {
    const struct frame_options *options;
    struct member *members;
    uint64_t rounds;
};

static void worker(unsigned index, void *argument) {
    const struct plan *plan = argument;
    const struct frame_options *options = plan->options;
    struct member *member = &plan->members[index];
    const size_t count = options->slot_count;
    frame_floor_circle(count * (options->bytes_max + 16));
    for (uint64_t round = 0; round < plan->rounds; round++) {
        const uint64_t stamp = frame_random_next(&member->random);
        for (size_t i = 0; i < count; i++) {
            frame_take(&member->slots[i], options->bytes_min, stamp + ((uint64_t)i << 33));
        }
        member->checksum += frame_drop_all(member->slots, count, options->check);
    }
    frame_floor_circle(0);
}

static void rounds_run(struct plan *plan, uint64_t blocks) {
    plan->rounds = frame_rounds(plan->options, blocks, plan->options->slot_count);
    frame_threads_run(plan->options->thread_count, worker, plan);
}

int main(int argc, char **argv) {
    struct frame_options options = {
        .workload = &threadtest,
        .seed = 53,
        .ops = 12000000,
        .warm_ops = 120000,
        .slot_count = 60000,
        .bytes_min = 16,
        .bytes_max = 16,
    };
    frame_options_parse(&options, argc, argv);
    struct plan plan = {.options = &options};
    plan.members = frame_map(options.thread_count * sizeof *plan.members);
    for (unsigned i = 0; i < options.thread_count; i++) {
        plan.members[i].slots = frame_map(options.slot_count * sizeof *plan.members[i].slots);
        plan.members[i].random = frame_random_make(options.seed, i);
    }
    rounds_run(&plan, options.warm_ops);
    rounds_run(&plan, options.ops);
    frame_stop();
    uint64_t checksum = 0;
    for (unsigned i = 0; i < options.thread_count; i++) {
        checksum += plan.members[i].checksum;
    }
    frame_report(&options, plan.rounds * options.thread_count * options.slot_count, checksum);
    return 0;
}
