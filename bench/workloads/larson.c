/* larson: a server whose threads do not last (after Larson and Krishnan, "Memory allocation for
 * long-running server applications", ISMM 1998). Each chain owns an array of blocks. A thread
 * replaces random blocks of its chain by blocks of another size, `rounds` times per slot, then
 * starts its successor, hands the array over and ends. The first free of a slot in each generation
 * is of a block that an ended thread allocated: one of `rounds`, 1 % with 100. */
#include "frame.h"

#include <pthread.h>

struct chain {
    const struct frame_options *options;
    struct frame_slot *slots;
    struct frame_random random;
    uint64_t replacements_left;
    uint64_t checksum;
};

static uint64_t done_chains;
static pthread_mutex_t done_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t done_changed = PTHREAD_COND_INITIALIZER;

static void chain_replace(struct chain *chain, uint64_t replacements) {
    const struct frame_options *options = chain->options;
    uint64_t checksum = 0;
    frame_floor_circle(options->slot_count * frame_bytes_mean(options) + 65536);
    for (uint64_t i = 0; i < replacements; i++) {
        uint64_t bits = frame_random_next(&chain->random);
        struct frame_slot *slot = &chain->slots[frame_random_below(bits, options->slot_count)];
        checksum += frame_drop(slot, options->check);
        frame_take(slot, frame_bytes_pick(options, bits), frame_random_mix(bits));
    }
    frame_floor_circle(0);
    chain->checksum += checksum;
    chain->replacements_left -= replacements;
}

static void *generation_main(void *argument) {
    struct chain *chain = argument;
    uint64_t replacements = chain->options->slot_count * chain->options->round_count;
    if (replacements > chain->replacements_left) {
        replacements = chain->replacements_left;
    }
    chain_replace(chain, replacements);
    if (chain->replacements_left > 0) {
        pthread_t successor;
        pthread_attr_t detached;
        pthread_attr_init(&detached);
        pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
        const int error = pthread_create(&successor, &detached, generation_main, chain);
        if (error != 0) {
            frame_fail_thread(error);
        }
        pthread_attr_destroy(&detached);
        return NULL;
    }
    pthread_mutex_lock(&done_lock);
    done_chains++;
    pthread_cond_signal(&done_changed);
    pthread_mutex_unlock(&done_lock);
    return NULL;
}

static void chain_start(unsigned index, void *argument) {
    generation_main(&((struct chain *)argument)[index]);
}

static void chains_wait(unsigned count) {
    pthread_mutex_lock(&done_lock);
    while (done_chains < count) {
        pthread_cond_wait(&done_changed, &done_lock);
    }
    pthread_mutex_unlock(&done_lock);
}

static const struct frame_workload larson = {
    .name = "larson",
    .unit = "blocks replaced",
};

int main(int argc, char **argv) {
    struct frame_options options = {
        .workload = &larson,
        .seed = 4141,
        .ops = 8000000,
        .warm_ops = 1,
        .slot_count = 5000,
        .bytes_min = 8,
        .bytes_max = 1000,
        .round_count = 100,
    };
    frame_options_parse(&options, argc, argv);
    const unsigned count = options.thread_count;
    struct chain *chains = frame_map(count * sizeof *chains);
    uint64_t checksum = 0;

    /* The main thread fills every chain: already the first generation frees what is not its own. */
    for (unsigned i = 0; i < count; i++) {
        struct chain *chain = &chains[i];
        chain->options = &options;
        chain->random = frame_random_make(options.seed, i);
        chain->slots = frame_map(options.slot_count * sizeof *chain->slots);
        for (size_t slot = 0; slot < options.slot_count; slot++) {
            uint64_t bits = frame_random_next(&chain->random);
            frame_take(&chain->slots[slot], frame_bytes_pick(&options, bits), bits);
        }
        chain->replacements_left = options.warm_ops;
        chain_replace(chain, options.warm_ops);
        chain->replacements_left = options.ops / count;
    }
    frame_threads_run(count, chain_start, chains);
    /* The threads of frame_threads_run are only the first generation. */
    chains_wait(count);
    frame_stop();
    for (unsigned i = 0; i < count; i++) {
        checksum += chains[i].checksum;
        checksum += frame_drop_all(chains[i].slots, options.slot_count, options.check);
    }
    frame_report(&options, options.ops / count * count, checksum);
    return 0;
}
