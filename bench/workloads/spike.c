/* spike: a peak of demand, then quiet. The process takes `ops` blocks, writes all their pages, frees
 * all but one in a thousand, and idles: does memory go back, how much, and when. The clock stops
 * before the idling. For --idle-ms nobody calls malloc or free (`extra.idle_rss_bytes`), then there
 * is a heartbeat of a few small blocks per millisecond for --beat-ms (`extra.beat_rss_bytes`), for
 * allocators that clean up only when called. `extra.live_bytes` is what the survivors hold. */
#include "frame.h"

enum { OS_PAGE_BYTES = 4096, KEPT_ONE_IN = 1000, SAMPLE_EVERY = 1024 };
enum { BEAT_BLOCKS = 16, BEAT_BYTES = 64 };

static uint64_t beat_ms = 500;

static const struct frame_workload spike = {
    .name = "spike",
    .unit = "blocks allocated and freed",
    .own = (const struct frame_own_option[]){{"--beat-ms", &beat_ms}, {NULL, NULL}},
};

/* Returns the sum of the sizes. */
static uint64_t blocks_take(const struct frame_options *options, struct frame_random *random,
                            struct frame_slot *slots) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < options->ops; i++) {
        const uint64_t bits = frame_random_next(random);
        const size_t bytes = frame_bytes_pick(options, bits);
        frame_take(&slots[i], bytes, frame_random_mix(bits));
        for (size_t at = OS_PAGE_BYTES; at + 1 < bytes; at += OS_PAGE_BYTES) {
            slots[i].block[at] = (unsigned char)at;
        }
        sum += bytes;
        if (i % SAMPLE_EVERY == 0) {
            frame_series_sample();
        }
    }
    return sum;
}

static uint64_t blocks_drop(const struct frame_options *options, struct frame_slot *slots) {
    uint64_t checksum = 0;
    for (uint64_t i = 0; i < options->ops; i++) {
        if (i % KEPT_ONE_IN != 0) {
            checksum += frame_drop(&slots[i], options->check);
        }
        if (i % SAMPLE_EVERY == 0) {
            frame_series_sample();
        }
    }
    return checksum;
}

static uint64_t survivor_bytes(const struct frame_options *options,
                               const struct frame_slot *slots) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < options->ops; i += KEPT_ONE_IN) {
        sum += (uint32_t)slots[i].stamp;
    }
    return sum;
}

static void beat(void *argument) {
    const bool *check = argument;
    struct frame_slot slots[BEAT_BLOCKS];
    for (size_t i = 0; i < BEAT_BLOCKS; i++) {
        frame_take(&slots[i], BEAT_BYTES, i << 32);
    }
    frame_drop_all(slots, BEAT_BLOCKS, *check);
}

static void quiet_measure(struct frame_options *options) {
    if (options->idle_ms > 0) {
        frame_idle(options->idle_ms, NULL, NULL);
        frame_extra("idle_rss_bytes", frame_rss_exact());
        options->idle_ms = 0; /* it was waited out here, with the survivors */
    }
    if (beat_ms > 0) {
        frame_idle(beat_ms, beat, &options->check);
        frame_extra("beat_rss_bytes", frame_rss_exact());
    }
}

int main(int argc, char **argv) {
    struct frame_options options = {
        .workload = &spike,
        .seed = 61,
        .ops = 2000000,
        .bytes_min = 64,
        .bytes_max = 262144,
        .idle_ms = 2000,
        .sizes = FRAME_PARETO,
    };
    frame_options_parse(&options, argc, argv);
    struct frame_slot *slots = frame_map(options.ops * sizeof *slots);
    struct frame_random random = frame_random_make(options.seed, 0);
    frame_start();
    const uint64_t spike_bytes = blocks_take(&options, &random, slots);
    uint64_t checksum = blocks_drop(&options, slots);
    frame_stop();
    frame_extra("spike_bytes", spike_bytes);
    frame_extra("live_bytes", survivor_bytes(&options, slots));
    quiet_measure(&options);
    checksum += frame_drop_all(slots, options.ops, options.check);
    frame_report(&options, options.ops, checksum);
    return 0;
}
