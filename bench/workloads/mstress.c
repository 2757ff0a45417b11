/* mstress: threads that live for some thousand blocks of skewed sizes. Of what a thread takes it keeps a third to its end, frees
 * most of the rest at random soon after, and now and then puts a block into a table that all threads share, and takes what was
 * there (after mimalloc's test-stress.c). Large blocks among small ones, blocks that outlive their thread, and none knows
 * whose block it frees. */
#include "exchange.h"

#include <pthread.h>

enum { TABLE_SLOTS = 1000, FREED_PERCENT = 66, SWAPPED_PERCENT = 25, DOUBLINGS = 6 };
/* One block in a hundred is larger by the first factor, one of these in a hundred by both. */
enum { RARE_FACTOR = 20, RAREST_FACTOR = 50 };

static const struct frame_workload mstress = {
    .name = "mstress",
    .unit = "blocks taken and freed",
};

struct chain {
    const struct frame_options *options;
    struct exchange_slot *table;
    struct frame_slot *passing, *lasting;
    struct frame_random random;
    uint64_t checksum;
};

struct plan {
    const struct frame_options *options;
    struct chain *chains;
    uint64_t generations;
};

static void block_take(struct chain *chain, struct frame_slot *slot) {
    const uint64_t bits = frame_random_next(&chain->random);
    const uint64_t more = frame_random_mix(bits);
    size_t bytes = chain->options->bytes_min << frame_random_below(bits, DOUBLINGS);
    if (frame_random_below(bits >> 32, 100) == 0) {
        bytes *= RARE_FACTOR;
        bytes *= frame_random_below(more >> 32, 100) == 0 ? RAREST_FACTOR : 1;
    }
    frame_take(slot, bytes < chain->options->bytes_max ? bytes : chain->options->bytes_max, more);
}

/* What is taken, kept and freed depends on the chain's random numbers alone, and not on what the others put into the
 * table: a slot of `passing` may be empty. */
static void *generation_main(void *argument) {
    struct chain *chain = argument;
    const struct frame_options *options = chain->options;
    size_t taken = 0, passing = 0, lasting = 0;
    frame_floor_circle(8 * options->round_count * (options->bytes_min << DOUBLINGS) / DOUBLINGS);
    while (taken < options->round_count) {
        const uint64_t bits = frame_random_next(&chain->random);
        struct frame_slot *slot =
            bits % 3 == 0 ? &chain->lasting[lasting++] : &chain->passing[passing++];
        block_take(chain, slot);
        taken++;
        if (passing > 0 && frame_random_below(bits, 100) < FREED_PERCENT) {
            struct frame_slot *freed = &chain->passing[(bits >> 32) % passing];
            chain->checksum += frame_drop_all(freed, 1, options->check);
            *freed = chain->passing[--passing];
        }
        const uint64_t more = frame_random_next(&chain->random);
        if (passing > 0 && frame_random_below(more, 100) < SWAPPED_PERCENT) {
            exchange_swap(&chain->table[(more >> 32) % TABLE_SLOTS],
                          &chain->passing[more / 7 % passing]);
        }
    }
    chain->checksum += frame_drop_all(chain->lasting, lasting, options->check);
    chain->checksum += frame_drop_all(chain->passing, passing, options->check);
    frame_floor_circle(0);
    return NULL;
}

static void worker(unsigned index, void *argument) {
    const struct plan *plan = argument;
    for (uint64_t i = 0; i < plan->generations; i++) {
        pthread_t thread;
        const int error = pthread_create(&thread, NULL, generation_main, &plan->chains[index]);
        if (error != 0) {
            frame_fail_thread(error);
        }
        pthread_join(thread, NULL);
    }
}

static void generations_run(struct plan *plan, uint64_t blocks) {
    plan->generations = frame_rounds(plan->options, blocks, plan->options->round_count);
    frame_threads_run(plan->options->thread_count, worker, plan);
}

int main(int argc, char **argv) {
    struct frame_options options = {
        .workload = &mstress,
        .seed = 67,
        .ops = 4000000,
        .warm_ops = 40000,
        .bytes_min = 8,
        .bytes_max = 1 << 20,
        .round_count = 10000,
        .thread_count = 2,
    };
    frame_options_parse(&options, argc, argv);
    if (options.round_count > UINT32_MAX) {
        frame_fail("mstress: a thread lives for at most 4,294,967,295 blocks");
    }
    struct plan plan = {.options = &options};
    struct exchange_slot *table = frame_map(TABLE_SLOTS * sizeof *table);
    plan.chains = frame_map(options.thread_count * sizeof *plan.chains);
    for (unsigned i = 0; i < options.thread_count; i++) {
        struct chain *chain = &plan.chains[i];
        chain->options = &options;
        chain->table = table;
        chain->passing = frame_map(options.round_count * sizeof *chain->passing);
        chain->lasting = frame_map(options.round_count * sizeof *chain->lasting);
        chain->random = frame_random_make(options.seed, i);
    }
    generations_run(&plan, options.warm_ops);
    generations_run(&plan, options.ops);
    frame_stop();
    uint64_t checksum = exchange_drop_all(table, TABLE_SLOTS, options.check);
    for (unsigned i = 0; i < options.thread_count; i++) {
        checksum += plan.chains[i].checksum;
    }
    frame_report(&options, plan.generations * options.thread_count * options.round_count, checksum);
    return 0;
}
