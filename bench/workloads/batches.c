/* batches: blocks of many sizes come in rising order, smaller ones more often, until a batch is full; then most of it is freed,
 * newest first, and one in four stays until the next batch is there (after the tests of MicroQuill's SmartHeap, sh6bench and
 * sh8bench, which mimalloc-bench runs). What lives on lies between what goes: every slab stays in use. */
#include "frame.h"

enum { KEPT_ONE_IN = 4, REPEATED_MOST = 400 };

static const struct frame_workload batches = {
    .name = "batches",
    .unit = "blocks taken and freed",
};

struct member {
    struct frame_slot *batch, *kept;
    struct frame_random random;
    uint64_t checksum;
};

struct plan {
    const struct frame_options *options;
    struct member *members;
    uint64_t rounds;
};

/* One batch: each size an eighth above the one before, from bytes_min to bytes_max and round again. */
static void batch_take(const struct frame_options *options, struct member *member) {
    size_t bytes = options->bytes_min, left = 0;
    for (size_t i = 0; i < options->slot_count; i++, left--) {
        if (left == 0) {
            bytes = i == 0 ? bytes : bytes + 1 + bytes / 8;
            bytes = bytes > options->bytes_max ? options->bytes_min : bytes;
            left = options->bytes_max / bytes / 4 + 1;
            left = left > REPEATED_MOST ? REPEATED_MOST : left;
        }
        frame_take(&member->batch[i], bytes, frame_random_next(&member->random));
    }
}

static void worker(unsigned index, void *argument) {
    const struct plan *plan = argument;
    const struct frame_options *options = plan->options;
    struct member *member = &plan->members[index];
    const size_t count = options->slot_count;
    frame_floor_circle(2 * count * (frame_bytes_mean(options) + 16));
    for (uint64_t round = 0; round < plan->rounds; round++) {
        batch_take(options, member);
        member->checksum += frame_drop_all(member->kept, count / KEPT_ONE_IN, options->check);
        for (size_t i = count; i-- > 0;) {
            struct frame_slot *kept = &member->kept[i / KEPT_ONE_IN];
            if (i % KEPT_ONE_IN == 0 && i / KEPT_ONE_IN < count / KEPT_ONE_IN) {
                *kept = member->batch[i];
            } else {
                member->checksum += frame_drop(&member->batch[i], options->check);
            }
        }
    }
    member->checksum += frame_drop_all(member->kept, count / KEPT_ONE_IN, options->check);
    frame_floor_circle(0);
}

static void rounds_run(struct plan *plan, uint64_t blocks) {
    plan->rounds = frame_rounds(plan->options, blocks, plan->options->slot_count);
    frame_threads_run(plan->options->thread_count, worker, plan);
}

int main(int argc, char **argv) {
    struct frame_options options = {
        .workload = &batches,
        .seed = 59,
        .ops = 6000000,
        .warm_ops = 60000,
        .slot_count = 6000,
        .bytes_min = 8,
        .bytes_max = 1000,
    };
    frame_options_parse(&options, argc, argv);
    struct plan plan = {.options = &options};
    plan.members = frame_map(options.thread_count * sizeof *plan.members);
    for (unsigned i = 0; i < options.thread_count; i++) {
        plan.members[i].batch = frame_map(options.slot_count * sizeof(struct frame_slot));
        plan.members[i].kept = frame_map(options.slot_count * sizeof(struct frame_slot));
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
