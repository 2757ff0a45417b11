/* large: blocks beyond every size class, as buffers of files, images and messages are. Each
 * operation frees the block of a random slot and fills it again, and every page of a block is
 * written, as a program that asked for it would: an allocator that gives memory back at once pays
 * for it by page faults, one that keeps everything pays in memory (the two sides that Leijen's
 * malloc-large in mimalloc-bench brings out). */
#include "replace.h"

enum { OS_PAGE_BYTES = 4096 };

static const struct frame_workload large = {
    .name = "large",
    .unit = "blocks replaced",
};

static uint64_t page_mark(uint64_t stamp, size_t offset) {
    return stamp ^ frame_random_mix(offset);
}

/* Marks every page after the first, which has the block's own mark. */
static void pages_write(const struct frame_slot *slot) {
    const size_t bytes = (uint32_t)slot->stamp;
    for (size_t at = OS_PAGE_BYTES; at + sizeof(uint64_t) < bytes; at += OS_PAGE_BYTES) {
        const uint64_t mark = page_mark(slot->stamp, at);
        __builtin_memcpy(slot->block + at, &mark, sizeof mark);
    }
}

static void pages_look(const struct frame_slot *slot, bool check) {
    const size_t bytes = (uint32_t)slot->stamp;
    uint64_t wrong = 0;
    for (size_t at = OS_PAGE_BYTES; at + sizeof(uint64_t) < bytes; at += OS_PAGE_BYTES) {
        uint64_t found;
        __builtin_memcpy(&found, slot->block + at, sizeof found);
        wrong |= found ^ page_mark(slot->stamp, at);
    }
    if (wrong != 0 && check) {
        frame_fail_contents(slot);
    }
}

static uint64_t block_replace(const struct frame_options *options, struct frame_slot *slot,
                              uint64_t bits) {
    uint64_t checksum = 0;
    if (slot->block != NULL) {
        pages_look(slot, options->check);
        checksum = frame_drop(slot, options->check);
    }
    frame_take(slot, frame_bytes_pick(options, bits), frame_random_mix(bits));
    pages_write(slot);
    return checksum;
}

int main(int argc, char **argv) {
    struct frame_options options = {
        .workload = &large,
        .seed = 17,
        .ops = 20000,
        .warm_ops = 500,
        .slot_count = 100,
        .bytes_min = 65536,
        .bytes_max = 1048576,
    };
    frame_options_parse(&options, argc, argv);
    replace_run(&options, options.slot_count * options.bytes_max, block_replace);
    return 0;
}
