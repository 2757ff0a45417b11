/* calloc: blocks that must be zero, which every allocator but a fresh page has to see to. Each
 * operation frees the block of a random slot, which was written, and takes a zeroed one, whose words
 * are looked at: all of them up to a page, one in each cache line beyond. */
#include "frame.h"

enum { DENSE_BYTES_MAX = 4096, LINE_BYTES = 64 };

static const struct frame_workload zeroed = {
    .name = "calloc",
    .unit = "blocks replaced",
};

static void zero_look(const unsigned char *block, size_t bytes, bool check) {
    const size_t step = bytes <= DENSE_BYTES_MAX ? sizeof(uint64_t) : LINE_BYTES;
    uint64_t found = 0, word;
    for (size_t at = 0; at + sizeof word <= bytes; at += step) {
        __builtin_memcpy(&word, block + at, sizeof word);
        found |= word;
    }
    __builtin_memcpy(&word, block + bytes - sizeof word, sizeof word);
    if ((found | word) != 0 && check) {
        frame_fail_block(block, "is not zero");
    }
}

/* Leaves traces all over the block, for whoever gets it next. */
static void lines_write(const struct frame_slot *slot) {
    const size_t bytes = (uint32_t)slot->stamp;
    for (size_t at = sizeof slot->stamp; at + sizeof slot->stamp < bytes; at += LINE_BYTES) {
        __builtin_memcpy(slot->block + at, &slot->stamp, sizeof slot->stamp);
    }
}

static uint64_t operations_run(const struct frame_options *options, struct frame_random *random,
                               struct frame_slot *slots, uint64_t ops) {
    uint64_t checksum = 0;
    for (uint64_t i = 0; i < ops; i++) {
        const uint64_t bits = frame_random_next(random);
        const size_t bytes = frame_bytes_pick(options, bits);
        struct frame_slot *slot = &slots[frame_random_below(bits, options->slot_count)];
        if (slot->block != NULL) {
            checksum += frame_drop(slot, options->check);
        }
        unsigned char *block = calloc(1 + (bits & 1), bytes >> (bits & 1));
        const size_t given = (bytes >> (bits & 1)) << (bits & 1);
        if (block != NULL) {
            zero_look(block, given, options->check);
        }
        frame_mark(slot, block, frame_stamp(given, frame_random_mix(bits)));
        lines_write(slot);
    }
    return checksum;
}

int main(int argc, char **argv) {
    struct frame_options options = {
        .workload = &zeroed,
        .seed = 19,
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
    if (options.bytes_min < 2 * sizeof(uint64_t)) {
        frame_fail("calloc: blocks of at least 16 bytes");
    }
    struct frame_slot *slots = frame_map(options.slot_count * sizeof *slots);
    struct frame_random random = frame_random_make(options.seed, 0);
    frame_floor_circle(options.slot_count * frame_bytes_mean(&options) + 2 * options.bytes_max);
    uint64_t checksum = operations_run(&options, &random, slots, options.warm_ops);
    frame_start();
    checksum += operations_run(&options, &random, slots, options.ops);
    frame_stop();
    checksum += frame_drop_all(slots, options.slot_count, options.check);
    frame_report(&options, options.ops, checksum);
    return 0;
}
