/* random_mixed: a working set of slots. Each operation picks a slot at random and frees its block,
 * or fills it with a block of a random size when it is empty. Sizes are uniform, or Pareto: real
 * programs ask mostly for small blocks and now and then for one a thousand times as large (the
 * distribution of OLogN's alloc-test, which mimalloc-bench runs too). The number of slots moves the
 * working set from the first-level cache to main memory. */
#include "replace.h"

static uint64_t block_take_or_drop(const struct frame_options *options, struct frame_slot *slot,
                                   uint64_t bits) {
    if (slot->block != NULL) {
        return frame_drop(slot, options->check);
    }
    frame_take(slot, frame_bytes_pick(options, bits), frame_random_mix(bits));
    return 0;
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
    };
    frame_options_parse(&options, argc, argv);
    /* Half of the slots are full in the long run. */
    replace_run(&options, options.slot_count * frame_bytes_mean(&options) / 2 + 65536,
                block_take_or_drop);
    return 0;
}
