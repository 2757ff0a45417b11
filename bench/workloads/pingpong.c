/* pingpong: two threads that hand one set of blocks back and forth. Whoever has it frees all
 * blocks, which the other allocated, fills the slots anew and gives them back: every block is freed
 * by the thread that did not allocate it, and only one thread works at a time (the request and
 * reply buffers of two stages of a server). */
#include "ring.h"

static const struct frame_workload pingpong = {
    .name = "pingpong",
    .unit = "blocks allocated and freed",
};

struct table {
    const struct frame_options *options;
    struct frame_slot *slots;
    uint64_t turns; /* of both threads together */
    uint64_t checksum;
    /* Release by the thread that ends its turn, pairs with the other's acquire. */
    _Alignas(128) _Atomic uint64_t turn;
};

static void worker(unsigned index, void *argument) {
    struct table *table = argument;
    const struct frame_options *options = table->options;
    struct frame_random random = frame_random_make(options->seed, index);
    frame_floor_circle(2 * options->slot_count * options->bytes_max);
    for (uint64_t turn = index; turn < table->turns; turn += 2) {
        unsigned looks = 0;
        while (atomic_load_explicit(&table->turn, memory_order_acquire) != turn) {
            ring_wait(&looks);
        }
        table->checksum += frame_drop_all(table->slots, options->slot_count, options->check);
        for (size_t i = 0; i < options->slot_count; i++) {
            const uint64_t bits = frame_random_next(&random);
            frame_take(&table->slots[i], frame_bytes_pick(options, bits), frame_random_mix(bits));
        }
        atomic_store_explicit(&table->turn, turn + 1, memory_order_release);
    }
}

static void turns_take(struct table *table, uint64_t ops) {
    table->turns = ops / table->options->slot_count;
    table->turn = 0;
    frame_threads_run(2, worker, table);
}

int main(int argc, char **argv) {
    struct frame_options options = {
        .workload = &pingpong,
        .seed = 13,
        .ops = 8000000,
        .warm_ops = 100000,
        .slot_count = 500,
        .bytes_min = 16,
        .bytes_max = 256,
        .thread_count = 2,
    };
    frame_options_parse(&options, argc, argv);
    if (options.thread_count != 2) {
        frame_fail("pingpong: two threads");
    }
    struct table table = {.options = &options};
    table.slots = frame_map(options.slot_count * sizeof *table.slots);
    turns_take(&table, options.warm_ops);
    turns_take(&table, options.ops);
    frame_stop();
    table.checksum += frame_drop_all(table.slots, options.slot_count, options.check);
    frame_report(&options, table.turns * options.slot_count, table.checksum);
    return 0;
}
