/* queue: pairs of threads. One allocates and sends, the other receives and frees, through a ring
 * that publishes its position once per 64 blocks, so that the ring is not what is measured. */
#include "frame.h"

#include <sched.h>
#include <stdatomic.h>

enum { RING_SLOTS = 4096, PUBLISH_EVERY = 64, LOOKS_BEFORE_YIELD = 512 };

struct ring {
    /* Written by the producer with release, read by the consumer with acquire: slots below it hold
     * blocks. Each position has a cache line of its own. */
    _Alignas(128) _Atomic uint64_t sent;
    /* Written by the consumer with release, read by the producer with acquire: slots below it are
     * free again. */
    _Alignas(128) _Atomic uint64_t received;
    _Alignas(128) struct frame_slot slots[RING_SLOTS];
};

struct pair {
    struct ring *ring;
    uint64_t blocks;
    uint64_t checksum; /* the consumer's */
};

struct plan {
    const struct frame_options *options;
    struct pair *pairs;
};

static uint64_t wait_until(_Atomic uint64_t *position, uint64_t goal) {
    uint64_t seen;
    for (unsigned looks = 1; (seen = atomic_load_explicit(position, memory_order_acquire)) < goal;
         looks++) {
        if (looks % LOOKS_BEFORE_YIELD == 0) {
            sched_yield();
        } else {
            frame_relax();
        }
    }
    return seen;
}

static void produce(const struct frame_options *options, struct pair *pair, unsigned index) {
    struct ring *ring = pair->ring;
    struct frame_random random = frame_random_make(options->seed, index);
    uint64_t received = 0;
    /* The consumer lags at most one ring and one batch behind. */
    frame_floor_circle((RING_SLOTS + PUBLISH_EVERY) * options->bytes_max);
    for (uint64_t i = 0; i < pair->blocks; i++) {
        if (i >= received + RING_SLOTS) {
            atomic_store_explicit(&ring->sent, i, memory_order_release);
            received = wait_until(&ring->received, i - RING_SLOTS + 1);
        }
        uint64_t bits = frame_random_next(&random);
        frame_take(&ring->slots[i % RING_SLOTS], frame_bytes_pick(options, bits), bits);
        if ((i + 1) % PUBLISH_EVERY == 0) {
            atomic_store_explicit(&ring->sent, i + 1, memory_order_release);
        }
    }
    atomic_store_explicit(&ring->sent, pair->blocks, memory_order_release);
}

static void consume(const struct frame_options *options, struct pair *pair) {
    struct ring *ring = pair->ring;
    uint64_t sent = 0, checksum = 0;
    for (uint64_t i = 0; i < pair->blocks; i++) {
        if (i >= sent) {
            atomic_store_explicit(&ring->received, i, memory_order_release);
            sent = wait_until(&ring->sent, i + 1);
        }
        checksum += frame_drop(&ring->slots[i % RING_SLOTS], options->check);
        if ((i + 1) % PUBLISH_EVERY == 0) {
            atomic_store_explicit(&ring->received, i + 1, memory_order_release);
        }
    }
    pair->checksum += checksum;
}

static void worker(unsigned index, void *argument) {
    struct plan *plan = argument;
    struct pair *pair = &plan->pairs[index / 2];
    if (index % 2 == 0) {
        produce(plan->options, pair, index);
    } else {
        consume(plan->options, pair);
    }
}

static uint64_t pairs_run(const struct frame_options *options, uint64_t blocks) {
    const unsigned pair_count = options->thread_count / 2;
    struct plan plan = {options, frame_map(pair_count * sizeof *plan.pairs)};
    uint64_t checksum = 0;
    for (unsigned i = 0; i < pair_count; i++) {
        plan.pairs[i].ring = frame_map(sizeof *plan.pairs[i].ring);
        plan.pairs[i].blocks = blocks / pair_count;
    }
    frame_threads_run(2 * pair_count, worker, &plan);
    for (unsigned i = 0; i < pair_count; i++) {
        checksum += plan.pairs[i].checksum;
    }
    return checksum;
}

int main(int argc, char **argv) {
    struct frame_options options = {
        .seed = 7,
        .ops = 8000000,
        .warm_ops = 500000,
        .slot_count = RING_SLOTS,
        .bytes_min = 64,
        .bytes_max = 64,
        .round_count = 1,
        .thread_count = 2,
        .check = true,
    };
    frame_options_parse(&options, "queue", argc, argv);
    if (options.thread_count % 2 != 0) {
        frame_fail("producers and consumers come in pairs: an even number of threads");
    }
    const unsigned pair_count = options.thread_count / 2;
    uint64_t checksum = pairs_run(&options, options.warm_ops);
    checksum += pairs_run(&options, options.ops);
    frame_print(&options, "queue", "blocks passed on", options.ops / pair_count * pair_count,
                checksum);
    return 0;
}
