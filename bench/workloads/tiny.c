/* tiny: blocks of one small size, `slots` mallocs and then as many frees, newest or oldest first.
 * The live set fits the first-level cache: what is measured is the two calls. */
#include "frame.h"

enum { LIFO, FIFO };

static uint64_t rounds_run(const struct frame_options *options, struct frame_slot *slots,
                           uint64_t rounds) {
    struct frame_random random = frame_random_make(options->seed, 0);
    const size_t count = options->slot_count;
    uint64_t checksum = 0;
    for (uint64_t round = 0; round < rounds; round++) {
        uint64_t stamp = frame_random_next(&random);
        for (size_t i = 0; i < count; i++) {
            /* Each block bears a mark of its own, so that no two can overlap unseen. */
            frame_take(&slots[i], options->bytes_min, stamp + ((uint64_t)i << 33));
        }
        if (options->variant == LIFO) {
            for (size_t i = count; i-- > 0;) {
                checksum += frame_drop(&slots[i], options->check);
            }
        } else {
            for (size_t i = 0; i < count; i++) {
                checksum += frame_drop(&slots[i], options->check);
            }
        }
    }
    return checksum;
}

static const struct frame_workload tiny = {
    .name = "tiny",
    .unit = "calls of malloc or free",
    .variants = (const char *const[]){"lifo", "fifo", NULL},
};

int main(int argc, char **argv) {
    struct frame_options options = {
        .workload = &tiny,
        .seed = 1,
        .ops = 60000000,
        .warm_ops = 2000000,
        .slot_count = 100,
        .bytes_min = 16,
        .bytes_max = 16,
    };
    frame_options_parse(&options, argc, argv);
    struct frame_slot *slots = frame_map(options.slot_count * sizeof *slots);
    const uint64_t calls_per_round = 2 * options.slot_count;
    const uint64_t rounds = (options.ops + calls_per_round - 1) / calls_per_round;

    frame_floor_circle(2 * options.slot_count * options.bytes_min);
    uint64_t checksum = rounds_run(&options, slots, options.warm_ops / calls_per_round);
    frame_start();
    checksum += rounds_run(&options, slots, rounds);
    frame_stop();
    frame_report(&options, rounds * calls_per_round, checksum);
    return 0;
}
