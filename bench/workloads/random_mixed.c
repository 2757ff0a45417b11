/* random_mixed: a working set of slots. Each operation picks a slot at random and frees its block,
 * or fills it with a block of a random size when it is empty. Sizes are uniform, or Pareto: real
 * programs ask mostly for small blocks and now and then for one a thousand times as large (the
 * distribution of OLogN's alloc-test, which mimalloc-bench runs too). The number of slots moves the
 * working set from the first-level cache to main memory. */
#include "frame.h"

static uint64_t operations_run(const struct frame_options *options, struct frame_random *random,
                               struct frame_slot *slots, uint64_t ops) {
    uint64_t checksum = 0;
    for (uint64_t i = 0; i < ops; i++) {
        uint64_t bits = frame_random_next(random);
        struct frame_slot *slot = &slots[frame_random_below(bits, options->slot_count)];
        if (slot->block != NULL) {
            checksum += frame_drop(slot, options->check);
        } else {
            frame_take(slot, frame_bytes_pick(options, bits), frame_random_mix(bits));
        }
    }
    return checksum;
}

static const struct frame_workload random_mixed = {
    .name = "random_mixed",
    .unit = "calls of malloc or free",
};

int main(int argc, char **argv) {
    struct frame_options options = {
        .workload = &random_mixed,
        .seed = 42,
        .ops = 20000000,
        .warm_ops = 2000000,
        .slot_count = 400,
        .bytes_min = 16,
        .bytes_max = 1024,
        .round_count = 1,
        .thread_count = 1,
        .check = true,
    };
    frame_options_parse(&options, argc, argv);
    struct frame_slot *slots = frame_map(options.slot_count * sizeof *slots);
    struct frame_random random = frame_random_make(options.seed, 0);

    /* Half of the slots are full in the long run. */
    frame_floor_circle(options.slot_count * frame_bytes_mean(&options) / 2 + 65536);
    uint64_t checksum = operations_run(&options, &random, slots, options.warm_ops);
    frame_start();
    checksum += operations_run(&options, &random, slots, options.ops);
    frame_stop();
    checksum += frame_drop_all(slots, options.slot_count, options.check);
    frame_report(&options, options.ops, checksum);
    return 0;
}
