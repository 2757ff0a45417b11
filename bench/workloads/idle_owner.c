/* idle_owner: threads that allocate and then never call the allocator again, while others free their
 * blocks. In each round a new owner fills the table and goes to sleep; the main thread frees all of
 * it, and the next owner takes as much in other sizes. What is live never exceeds one table
 * (`extra.live_bytes`): memory that waits for its sleeping owner to collect it comes on top, once for
 * each round (the blow-up of Berger and others, "Hoard", ASPLOS 2000, in its mildest form). */
#include "frame.h"

#include <pthread.h>
#include <semaphore.h>

enum { ROUNDS_MAX = 64 };

static const struct frame_workload idle_owner = {
    .name = "idle_owner",
    .unit = "blocks allocated and freed",
};

struct owner {
    struct frame_options options; /* sizes of its own */
    struct frame_slot *slots;
    struct frame_random random;
    uint64_t live_bytes;
    sem_t filled, released;
    pthread_t thread;
};

static void *owner_main(void *argument) {
    struct owner *owner = argument;
    frame_floor_circle(owner->options.slot_count * owner->options.bytes_max);
    for (size_t i = 0; i < owner->options.slot_count; i++) {
        const uint64_t bits = frame_random_next(&owner->random);
        const size_t bytes = frame_bytes_pick(&owner->options, bits);
        frame_take(&owner->slots[i], bytes, frame_random_mix(bits));
        owner->live_bytes += bytes;
    }
    sem_post(&owner->filled);
    sem_wait(&owner->released);
    return NULL;
}

/* Each owner's sizes are a fifth above those of the one before, and its blocks so many fewer. */
static void owner_start(struct owner *owner, const struct frame_options *options, unsigned round,
                        struct frame_slot *slots) {
    owner->options = *options;
    for (unsigned i = 0; i < round; i++) {
        owner->options.bytes_min = owner->options.bytes_min * 6 / 5;
        owner->options.bytes_max = owner->options.bytes_max * 6 / 5;
        owner->options.slot_count = owner->options.slot_count * 5 / 6;
    }
    owner->slots = slots;
    owner->random = frame_random_make(options->seed, round);
    sem_init(&owner->filled, 0, 0);
    sem_init(&owner->released, 0, 0);
    const int error = pthread_create(&owner->thread, NULL, owner_main, owner);
    if (error != 0) {
        frame_fail_thread(error);
    }
    sem_wait(&owner->filled);
}

/* The first owner's number of blocks, such that all rounds together come to `ops`. */
static size_t first_count(const struct frame_options *options) {
    double sum = 0, share = 1;
    for (size_t round = 0; round < options->round_count; round++) {
        sum += share;
        share *= 5.0 / 6.0;
    }
    return (size_t)((double)options->ops / sum) + 1;
}

int main(int argc, char **argv) {
    struct frame_options options = {
        .workload = &idle_owner,
        .seed = 79,
        .ops = 1000000, /* of all rounds together, but for rounding */
        .bytes_min = 16,
        .bytes_max = 512,
        .round_count = 5,
    };
    frame_options_parse(&options, argc, argv);
    if (options.round_count > ROUNDS_MAX) {
        frame_fail("idle_owner: at most 64 rounds");
    }
    options.slot_count = first_count(&options);
    struct owner *owners = frame_map(options.round_count * sizeof *owners);
    struct frame_slot *slots = frame_map(options.slot_count * sizeof *slots);
    uint64_t checksum = 0, ops = 0, live_bytes = 0;
    frame_start();
    for (unsigned round = 0; round < options.round_count; round++) {
        struct owner *owner = &owners[round];
        if (round > 0) {
            checksum += frame_drop_all(slots, options.slot_count, options.check);
        }
        owner_start(owner, &options, round, slots);
        ops += owner->options.slot_count;
        live_bytes = owner->live_bytes > live_bytes ? owner->live_bytes : live_bytes;
        frame_series_sample();
    }
    frame_stop();
    frame_extra("live_bytes", live_bytes);
    checksum += frame_drop_all(slots, options.slot_count, options.check);
    for (unsigned round = 0; round < options.round_count; round++) {
        sem_post(&owners[round].released);
        pthread_join(owners[round].thread, NULL);
    }
    frame_report(&options, ops, checksum);
    return 0;
}
