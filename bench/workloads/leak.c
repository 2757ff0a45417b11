/* leak: random replacements in a working set, and some blocks in a thousand are forgotten instead of
 * freed. It is the positive control of every figure of memory: end RSS must show at least
 * `extra.leaked_bytes`, on every allocator. */
#include "frame.h"

enum { SAMPLE_EVERY = 4096 };

static uint64_t leak_per_mille = 10;

static const struct frame_workload leak = {
    .name = "leak",
    .unit = "blocks replaced",
    .own = (const struct frame_own_option[]){{"--leak", &leak_per_mille}, {NULL, NULL}},
};

struct heap {
    struct frame_slot *slots;
    struct frame_random random;
    uint64_t leaked_bytes, checksum;
};

static void operations_run(const struct frame_options *options, struct heap *heap, uint64_t ops) {
    for (uint64_t i = 0; i < ops; i++) {
        const uint64_t bits = frame_random_next(&heap->random);
        const uint64_t more = frame_random_mix(bits);
        struct frame_slot *slot = &heap->slots[frame_random_below(bits, options->slot_count)];
        if (slot->block != NULL && frame_random_below(more >> 32, 1000) < leak_per_mille) {
            heap->leaked_bytes += (uint32_t)slot->stamp;
        } else if (slot->block != NULL) {
            heap->checksum += frame_drop(slot, options->check);
        }
        frame_take(slot, frame_bytes_pick(options, bits), more);
        if (i % SAMPLE_EVERY == 0) {
            frame_series_sample();
        }
    }
}

int main(int argc, char **argv) {
    struct frame_options options = {
        .workload = &leak,
        .seed = 67,
        .ops = 4000000,
        .warm_ops = 100000,
        .slot_count = 10000,
        .bytes_min = 16,
        .bytes_max = 1024,
    };
    frame_options_parse(&options, argc, argv);
    struct heap heap = {.slots = frame_map(options.slot_count * sizeof *heap.slots),
                        .random = frame_random_make(options.seed, 0)};
    frame_floor_circle(2 * options.slot_count * frame_bytes_mean(&options));
    operations_run(&options, &heap, options.warm_ops);
    frame_start();
    operations_run(&options, &heap, options.ops);
    frame_stop();
    frame_extra("leaked_bytes", heap.leaked_bytes);
    heap.checksum += frame_drop_all(heap.slots, options.slot_count, options.check);
    frame_report(&options, options.ops, heap.checksum);
    return 0;
}
