/* queue: producers allocate and send, consumers receive and free (the asymmetric pattern of
 * xmalloc-test, Lever and Boreham, "malloc() performance in a multithreaded Linux environment",
 * USENIX 2000). Blocks travel through rings in batches. With one producer and several consumers, or
 * the other way round, the one that is alone serves the others in turn. */
#include "ring.h"

static uint64_t consumer_count = 1;

static const struct frame_workload queue = {
    .name = "queue",
    .unit = "blocks passed on",
    .own = (const struct frame_own_option[]){{"--consumers", &consumer_count}, {NULL, NULL}},
};

struct plan {
    const struct frame_options *options;
    struct ring **rings;
    unsigned producer_count, ring_count;
    uint64_t blocks;           /* through each ring */
    _Atomic uint64_t checksum; /* relaxed; read when all have been joined */
};

/* Passes one batch, or what is left of it, into the ring. */
static void batch_send(const struct frame_options *options, struct ring *ring,
                       struct frame_random *random, uint64_t blocks) {
    for (uint64_t i = 0; i < blocks; i++) {
        unsigned looks = 0;
        struct frame_slot *slot;
        while ((slot = ring_free_slot(ring)) == NULL) {
            ring_wait(&looks);
        }
        uint64_t bits = frame_random_next(random);
        frame_take(slot, frame_bytes_pick(options, bits), bits);
        ring_fill(ring);
    }
}

static uint64_t batch_receive(const struct frame_options *options, struct ring *ring,
                              uint64_t blocks) {
    uint64_t checksum = 0;
    for (uint64_t i = 0; i < blocks; i++) {
        unsigned looks = 0;
        struct frame_slot *slot;
        while ((slot = ring_full_slot(ring)) == NULL) {
            ring_wait(&looks);
        }
        checksum += frame_drop(slot, options->check);
        ring_empty(ring);
    }
    return checksum;
}

static uint64_t batch_blocks(const struct plan *plan, uint64_t passed) {
    return plan->blocks - passed < RING_BATCH ? plan->blocks - passed : RING_BATCH;
}

/* Serves every ring whose number is `index` modulo the number of producers. */
static void produce(const struct plan *plan, unsigned index) {
    const unsigned own_rings = plan->ring_count / plan->producer_count;
    struct frame_random random = frame_random_make(plan->options->seed, index);
    /* The consumers lag at most one ring and one batch behind. */
    frame_floor_circle(own_rings * (RING_SLOTS + RING_BATCH) * plan->options->bytes_max);
    for (uint64_t passed = 0; passed < plan->blocks; passed += RING_BATCH) {
        for (unsigned i = index; i < plan->ring_count; i += plan->producer_count) {
            batch_send(plan->options, plan->rings[i], &random, batch_blocks(plan, passed));
        }
    }
    for (unsigned i = index; i < plan->ring_count; i += plan->producer_count) {
        ring_publish(plan->rings[i]);
    }
}

static void consume(struct plan *plan, unsigned index) {
    uint64_t checksum = 0;
    for (uint64_t passed = 0; passed < plan->blocks; passed += RING_BATCH) {
        for (unsigned i = index; i < plan->ring_count; i += (unsigned)consumer_count) {
            checksum += batch_receive(plan->options, plan->rings[i], batch_blocks(plan, passed));
        }
    }
    atomic_fetch_add_explicit(&plan->checksum, checksum, memory_order_relaxed);
}

static void worker(unsigned index, void *argument) {
    struct plan *plan = argument;
    if (index < plan->producer_count) {
        produce(plan, index);
    } else {
        consume(plan, index - plan->producer_count);
    }
}

static void blocks_pass(struct plan *plan, uint64_t blocks) {
    plan->blocks = blocks / plan->ring_count;
    frame_threads_run(plan->options->thread_count, worker, plan);
}

int main(int argc, char **argv) {
    struct frame_options options = {
        .workload = &queue,
        .seed = 7,
        .ops = 8000000,
        .warm_ops = 500000,
        .slot_count = RING_SLOTS,
        .bytes_min = 64,
        .bytes_max = 64,
        .thread_count = 2,
    };
    frame_options_parse(&options, argc, argv);
    if (consumer_count == 0 || consumer_count >= options.thread_count) {
        frame_fail("queue: 1 <= consumers < threads");
    }
    const unsigned consumers = (unsigned)consumer_count;
    struct plan plan = {.options = &options, .producer_count = options.thread_count - consumers};
    plan.ring_count = consumers > plan.producer_count ? consumers : plan.producer_count;
    if (plan.ring_count % consumers != 0 || plan.ring_count % plan.producer_count != 0) {
        frame_fail("queue: as many producers as consumers, or a multiple of the one");
    }
    plan.rings = frame_map(plan.ring_count * sizeof(struct ring *));
    for (unsigned i = 0; i < plan.ring_count; i++) {
        plan.rings[i] = frame_map(sizeof *plan.rings[i]);
    }
    blocks_pass(&plan, options.warm_ops);
    blocks_pass(&plan, options.ops);
    frame_stop();
    frame_report(&options, options.ops / plan.ring_count * plan.ring_count, plan.checksum);
    return 0;
}
