/* calloc: blocks that must be zero, which every allocator but a fresh page has to see to. Each
 * operation frees the block of a random slot, which was written, and takes a zeroed one, whose words
 * are looked at: all of them up to a page, one in each cache line beyond. */
#include "replace.h"

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

static uint64_t block_replace(const struct frame_options *options, struct frame_slot *slot,
                              uint64_t bits) {
    const unsigned doubled = bits & 1; /* one element, or two */
    const size_t bytes = frame_bytes_pick(options, bits) >> doubled << doubled;
    const uint64_t checksum = frame_drop_all(slot, 1, options->check);
    unsigned char *block = calloc(1 + doubled, bytes >> doubled);
    if (block != NULL) {
        zero_look(block, bytes, options->check);
    }
    frame_mark(slot, block, frame_stamp(bytes, frame_random_mix(bits)));
    lines_write(slot);
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
    };
    frame_options_parse(&options, argc, argv);
    if (options.bytes_min < 2 * sizeof(uint64_t)) {
        frame_fail("calloc: blocks of at least 16 bytes");
    }
    replace_run(&options, options.slot_count * frame_bytes_mean(&options) + 2 * options.bytes_max,
                block_replace);
    return 0;
}
