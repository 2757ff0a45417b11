/* aligned: blocks for vector registers, cache lines, pages and direct input and output. Each
 * operation frees the block of a random slot and takes one at a random power of two, half of them by
 * posix_memalign and half by aligned_alloc; the addresses are checked. */
#include "replace.h"

static uint64_t align_min = 16, align_max = 256;

static const struct frame_workload aligned = {
    .name = "aligned",
    .unit = "blocks replaced",
    .own = (const struct frame_own_option[]){{"--align-min", &align_min},
                                             {"--align-max", &align_max},
                                             {NULL, NULL}},
};

/* A block of the stamp's size. aligned_alloc gets whole multiples of the alignment, as C11 wants.
 * The alignment comes from the highest bits of the stamp, the function from another one: each
 * function sees every alignment. */
static unsigned char *block_take(size_t alignment, uint64_t stamp, bool check) {
    const size_t bytes = (uint32_t)stamp;
    void *block;
    if ((stamp >> 32 & 1) == 0) {
        block = aligned_alloc(alignment, (bytes + alignment - 1) & ~(alignment - 1));
    } else if (posix_memalign(&block, alignment, bytes) != 0) {
        block = NULL;
    }
    if (((uintptr_t)block & (alignment - 1)) != 0 && check) {
        frame_fail_block(block, "is not aligned");
    }
    return block;
}

static uint64_t block_replace(const struct frame_options *options, struct frame_slot *slot,
                              uint64_t bits) {
    const size_t choices = 1 + (size_t)__builtin_ctzll(align_max / align_min);
    const uint64_t stamp = frame_stamp(frame_bytes_pick(options, bits), frame_random_mix(bits));
    const size_t alignment = align_min << frame_random_below(stamp >> 32, choices);
    const uint64_t checksum = frame_drop_all(slot, 1, options->check);
    frame_mark(slot, block_take(alignment, stamp, options->check), stamp);
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
    };
    frame_options_parse(&options, argc, argv);
    if (!power_of_two(align_min) || !power_of_two(align_max) || align_min < sizeof(void *) ||
        align_min > align_max) {
        frame_fail("aligned: powers of two, 8 <= align-min <= align-max");
    }
    replace_run(&options, options.slot_count * (options.bytes_max + 2 * align_max), block_replace);
    return 0;
}
