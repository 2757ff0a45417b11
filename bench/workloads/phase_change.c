/* phase_change: a heap whose use changes. It is filled with blocks of some sizes up to a number of
 * live bytes; 95 % of these are freed, at random; then it is filled up again with blocks of other
 * sizes, and so on. Memory that the old sizes hold and the new ones cannot use is fragmentation: peak
 * RSS against `extra.live_bytes`, which is the same in every phase (Robson's bound in practice;
 * Johnstone and Wilson, "The memory fragmentation problem: solved?", ISMM 1998). */
#include "frame.h"

enum { SURVIVORS_PERCENT = 5, SAMPLE_EVERY = 1024 };

/* The mean number of live bytes for each block allocated: 1 / (sum over the phases of the share of
 * the bytes that is new, divided by the mean size). */
enum { LIVE_BYTES_PER_OP = 15 };

static const struct {
    size_t bytes_min, bytes_max;
} phases[] = {{32, 32}, {400, 400}, {96, 160}, {1500, 2500}, {16, 64}};

static const struct frame_workload phase_change = {
    .name = "phase_change",
    .unit = "blocks allocated and freed",
};

struct heap {
    struct frame_options options; /* its sizes change with the phases */
    struct frame_slot *slots;     /* live ones first, in no order */
    size_t count, capacity;
    uint64_t live_bytes, taken_count, checksum;
    struct frame_random random;
};

static void blocks_fill(struct heap *heap, uint64_t live_bytes) {
    while (heap->live_bytes < live_bytes && heap->count < heap->capacity) {
        const uint64_t bits = frame_random_next(&heap->random);
        const size_t bytes = frame_bytes_pick(&heap->options, bits);
        frame_take(&heap->slots[heap->count++], bytes, frame_random_mix(bits));
        heap->live_bytes += bytes;
        if (heap->taken_count++ % SAMPLE_EVERY == 0) {
            frame_series_sample();
        }
    }
}

static void blocks_thin(struct heap *heap, uint64_t live_bytes) {
    while (heap->live_bytes > live_bytes) {
        const uint64_t bits = frame_random_next(&heap->random);
        struct frame_slot *slot = &heap->slots[frame_random_below(bits, heap->count)];
        heap->live_bytes -= (uint32_t)slot->stamp;
        heap->checksum += frame_drop(slot, heap->options.check);
        *slot = heap->slots[--heap->count];
        if (heap->count % SAMPLE_EVERY == 0) {
            frame_series_sample();
        }
    }
}

int main(int argc, char **argv) {
    struct heap heap = {.options = {
                            .workload = &phase_change,
                            .seed = 59,
                            .ops = 2000000,
                            .bytes_min = 16,
                            .bytes_max = 2500,
                        }};
    struct frame_options *options = &heap.options;
    frame_options_parse(options, argc, argv);
    const uint64_t live_bytes = options->ops * LIVE_BYTES_PER_OP;
    heap.capacity = live_bytes / phases[0].bytes_min * 5 / 4 + 1;
    heap.slots = frame_map(heap.capacity * sizeof *heap.slots);
    heap.random = frame_random_make(options->seed, 0);
    frame_start();
    for (size_t i = 0; i < sizeof phases / sizeof phases[0]; i++) {
        options->bytes_min = phases[i].bytes_min;
        options->bytes_max = phases[i].bytes_max;
        blocks_thin(&heap, live_bytes * SURVIVORS_PERCENT / 100);
        blocks_fill(&heap, live_bytes);
    }
    frame_stop();
    frame_extra("live_bytes", heap.live_bytes);
    heap.checksum += frame_drop_all(heap.slots, heap.count, options->check);
    frame_report(options, heap.taken_count, heap.checksum);
    return 0;
}
