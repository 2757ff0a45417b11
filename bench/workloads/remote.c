/* remote: threads that each keep a working set of their own, and give a fixed share of their
 * blocks to their neighbour, which frees them (the cross-thread rate of rpmalloc-benchmark). Every
 * thread allocates and frees all the time: unlike in `queue`, a thread's own frees and the blocks
 * that come home meet in one heap. */
#include "ring.h"

static uint64_t share_percent = 50;

static const struct frame_workload remote = {
    .name = "remote",
    .unit = "blocks allocated and freed",
    .own = (const struct frame_own_option[]){{"--share", &share_percent}, {NULL, NULL}},
};

struct member {
    struct ring *inbox;
    struct frame_slot *slots;
    uint64_t checksum;
};

struct plan {
    const struct frame_options *options;
    struct member *members;
    uint64_t blocks;           /* of each thread */
    _Atomic unsigned finished; /* release by each thread when it has published its last block,
                                  pairs with the acquire of its neighbour's last look */
};

/* Frees what the neighbour has sent so far. */
static void inbox_empty(const struct frame_options *options, struct member *member) {
    struct frame_slot *slot;
    while ((slot = ring_full_slot(member->inbox)) != NULL) {
        member->checksum += frame_drop(slot, options->check);
        ring_empty(member->inbox);
    }
}

static void block_send(const struct frame_options *options, struct member *member,
                       struct ring *outbox, size_t bytes, uint64_t bits) {
    unsigned looks = 0;
    struct frame_slot *slot;
    while ((slot = ring_free_slot(outbox)) == NULL) {
        /* The neighbour may itself be waiting for room. */
        inbox_empty(options, member);
        ring_wait(&looks);
    }
    frame_take(slot, bytes, bits);
    ring_fill(outbox);
}

static void worker(unsigned index, void *argument) {
    struct plan *plan = argument;
    const struct frame_options *options = plan->options;
    struct member *member = &plan->members[index];
    struct ring *outbox = plan->members[(index + 1) % options->thread_count].inbox;
    struct frame_random random = frame_random_make(options->seed, index);
    frame_floor_circle((RING_SLOTS + options->slot_count) * frame_bytes_mean(options) * 2);
    for (uint64_t i = 0; i < plan->blocks; i++) {
        const uint64_t bits = frame_random_next(&random);
        const uint64_t more = frame_random_mix(bits);
        const size_t bytes = frame_bytes_pick(options, bits);
        if (frame_random_below(bits, 100) < share_percent) {
            block_send(options, member, outbox, bytes, more);
        } else {
            struct frame_slot *slot =
                &member->slots[frame_random_below(more >> 32, options->slot_count)];
            if (slot->block != NULL) {
                member->checksum += frame_drop(slot, options->check);
            }
            frame_take(slot, bytes, more);
        }
        if (i % RING_BATCH == 0) {
            inbox_empty(options, member);
        }
    }
    ring_publish(outbox);
    atomic_fetch_add_explicit(&plan->finished, 1, memory_order_release);
    unsigned looks = 0;
    while (atomic_load_explicit(&plan->finished, memory_order_acquire) < options->thread_count) {
        inbox_empty(options, member);
        ring_wait(&looks);
    }
    inbox_empty(options, member);
}

static void blocks_exchange(struct plan *plan, uint64_t blocks) {
    plan->blocks = blocks / plan->options->thread_count;
    plan->finished = 0;
    frame_threads_run(plan->options->thread_count, worker, plan);
}

int main(int argc, char **argv) {
    struct frame_options options = {
        .workload = &remote,
        .seed = 11,
        .ops = 8000000,
        .warm_ops = 200000,
        .slot_count = 1000,
        .bytes_min = 16,
        .bytes_max = 512,
        .thread_count = 2,
    };
    frame_options_parse(&options, argc, argv);
    if (share_percent > 100 || options.thread_count < 2) {
        frame_fail("remote: at least 2 threads, and a share of at most 100 percent");
    }
    struct plan plan = {.options = &options};
    plan.members = frame_map(options.thread_count * sizeof *plan.members);
    for (unsigned i = 0; i < options.thread_count; i++) {
        plan.members[i].inbox = frame_map(sizeof *plan.members[i].inbox);
        plan.members[i].slots = frame_map(options.slot_count * sizeof *plan.members[i].slots);
    }
    blocks_exchange(&plan, options.warm_ops);
    blocks_exchange(&plan, options.ops);
    frame_stop();
    uint64_t checksum = 0;
    for (unsigned i = 0; i < options.thread_count; i++) {
        checksum += plan.members[i].checksum;
        checksum += frame_drop_all(plan.members[i].slots, options.slot_count, options.check);
    }
    frame_report(&options, plan.blocks * options.thread_count, checksum);
    return 0;
}
