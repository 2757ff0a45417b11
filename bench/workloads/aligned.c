/* aligned: blocks for vector registers, cache lines, pages and direct input and output. Each
 * operation frees the block of a random slot and takes one at a random power of two, half of them by
 * posix_memalign and half by aligned_alloc; the addresses are checked. */
#include "frame.h"

static uint64_t align_min = 16, align_max = 256;

static const struct frame_workload aligned = {
    .name = "aligned",
    .unit = "blocks replaced",
    .own = (const struct frame_own_option[]){{"--align-min", &align_min},
                                             {"--align-max", &align_max},
                                             {NULL, NULL}},
};

/* A block of the stamp's size. aligned_alloc gets whole multiples of the alignment, as C11 wants. */
static unsigned char *block_take(size_t alignment, uint64_t stamp, bool check) {
    const size_t bytes = (uint32_t)stamp;
    void *block;
    if ((stamp >> 63) == 0) {
        block = aligned_alloc(alignment, (bytes + alignment - 1) & ~(alignment - 1));
    } else if (posix_memalign(&block, alignment, bytes) != 0) {
        block = NULL;
    }
    if (((uintptr_t)block & (alignment - 1)) != 0 && check) {
        frame_fail_block(block, "is not aligned");
    }
    return block;
}

static uint64_t operations_run(const struct frame_options *options, struct frame_random *random,
                               struct frame_slot *slots, uint64_t ops) {
    const size_t doublings = (size_t)__builtin_ctzll(align_max / align_min);
    uint64_t checksum = 0;
    for (uint64_t i = 0; i < ops; i++) {
        const uint64_t bits = frame_random_next(random);
        const uint64_t stamp = frame_stamp(frame_bytes_pick(options, bits), frame_random_mix(bits));
        struct frame_slot *slot = &slots[frame_random_below(bits, options->slot_count)];
        if (slot->block != NULL) {
            checksum += frame_drop(slot, options->check);
        }
        const size_t alignment = align_min << frame_random_below(stamp >> 32, doublings + 1);
        frame_mark(slot, block_take(alignment, stamp, options->check), stamp);
    }
    return checksum;
}

static bool power_of_two(uint64_t number) {
    return number != 0 && (number & (number - 1)) == 0;
}

int main(int argc, char **argv) {
    struct frame_options options = {
        .workload = &aligned,
        .seed = 23,
        .ops = 4000000,
        .warm_ops = 100000,
        .slot_count = 1000,
        .bytes_min = 16,
        .bytes_max = 1024,
        .round_count = 1,
        .thread_count = 1,
        .check = true,
    };
    frame_options_parse(&options, argc, argv);
    if (!power_of_two(align_min) || !power_of_two(align_max) || align_min < sizeof(void *) ||
        align_min > align_max) {
        frame_fail("aligned: powers of two, 8 <= align-min <= align-max");
    }
    struct frame_slot *slots = frame_map(options.slot_count * sizeof *slots);
    struct frame_random random = frame_random_make(options.seed, 0);
    frame_floor_circle(options.slot_count * (options.bytes_max + 2 * align_max));
    uint64_t checksum = operations_run(&options, &random, slots, options.warm_ops);
    frame_start();
    checksum += operations_run(&options, &random, slots, options.ops);
    frame_stop();
    checksum += frame_drop_all(slots, options.slot_count, options.check);
    frame_report(&options, options.ops, checksum);
    return 0;
}
