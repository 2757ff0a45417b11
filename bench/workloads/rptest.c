/* rptest: threads that each empty and fill a table of blocks in long strides, and now and then send a bundle of blocks to one of the
 * others, in turn, which frees them before it goes on (after rpmalloc-benchmark, which mimalloc-bench runs as rptest). Each page
 * of a block is written. A thread has few bundles and waits until one came back: what is on its way is bounded. */
#include "ring.h"

enum { OS_PAGE_BYTES = 4096, STRIDE_FILL = 3, STRIDE_EMPTY = 7 };
/* A loop fills 30 to 99 slots and empties 24 to 79; every second one sends a quarter as many blocks as it filled. */
enum { LOOP_LEAST = 30, LOOP_SPREAD = 70, BUNDLES = 8, BUNDLE_SLOTS = 32 };

static const struct frame_workload rptest = {
    .name = "rptest",
    .unit = "blocks taken and freed",
};

struct bundle {
    struct bundle *next;
    struct member *owner;
    size_t count;
    struct frame_slot slots[BUNDLE_SLOTS];
};

/* Release by who puts a bundle in, acquire by the one member that takes all. */
typedef _Atomic(struct bundle *) bundle_list;

struct member {
    _Alignas(128) bundle_list inbox, returned;
    _Alignas(128) struct bundle *empty;
    struct frame_slot *slots;
    struct frame_random random;
    uint64_t checksum;
    size_t fill_at, empty_at;
    unsigned index, receiver;
    struct bundle bundles[BUNDLES];
};

struct plan {
    const struct frame_options *options;
    struct member *members;
    uint64_t blocks;           /* of each thread */
    _Atomic unsigned finished; /* release by each thread behind its last bundle, pairs with the
                                  acquire of the others' last look */
};

static void bundle_put(bundle_list *list, struct bundle *bundle) {
    bundle->next = atomic_load_explicit(list, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(list, &bundle->next, bundle, memory_order_release,
                                                  memory_order_relaxed)) {
    }
}

static struct bundle *bundles_take_all(bundle_list *list) {
    return atomic_exchange_explicit(list, NULL, memory_order_acquire);
}

/* Sizes become rarer in a straight line: the smaller of two that are as likely as each other. */
static void block_take(const struct frame_options *options, struct member *member,
                       struct frame_slot *slot) {
    const uint64_t bits = frame_random_next(&member->random);
    const size_t one = frame_bytes_pick(options, bits);
    const size_t other = frame_bytes_pick(options, bits << 32);
    const size_t bytes = one < other ? one : other;
    frame_take(slot, bytes, frame_random_mix(bits));
    for (size_t at = OS_PAGE_BYTES; at + 1 < bytes; at += OS_PAGE_BYTES) {
        slot->block[at] = (unsigned char)at;
    }
}

static void inbox_empty(const struct frame_options *options, struct member *member) {
    struct bundle *next;
    for (struct bundle *bundle = bundles_take_all(&member->inbox); bundle != NULL; bundle = next) {
        next = bundle->next;
        member->checksum += frame_drop_all(bundle->slots, bundle->count, options->check);
        bundle_put(&bundle->owner->returned, bundle);
    }
}

static struct bundle *bundle_empty(const struct frame_options *options, struct member *member) {
    unsigned looks = 0;
    while (member->empty == NULL && (member->empty = bundles_take_all(&member->returned)) == NULL) {
        /* The receivers may themselves be waiting for one. */
        inbox_empty(options, member);
        ring_wait(&looks);
    }
    struct bundle *bundle = member->empty;
    member->empty = bundle->next;
    return bundle;
}

static void bundle_send(const struct plan *plan, struct member *member, size_t count) {
    struct bundle *bundle = bundle_empty(plan->options, member);
    for (bundle->count = 0; bundle->count < count; bundle->count++) {
        block_take(plan->options, member, &bundle->slots[bundle->count]);
    }
    do {
        member->receiver = (member->receiver + 1) % plan->options->thread_count;
    } while (member->receiver == member->index);
    bundle_put(&plan->members[member->receiver].inbox, bundle);
}

static struct frame_slot *next_slot(const struct frame_options *options, struct member *member,
                                    size_t *at, size_t stride) {
    struct frame_slot *slot = &member->slots[*at];
    *at = (*at + stride) % options->slot_count;
    if (slot->block != NULL) {
        member->checksum += frame_drop(slot, options->check);
    }
    return slot;
}

static void worker(unsigned index, void *argument) {
    struct plan *plan = argument;
    const struct frame_options *options = plan->options;
    struct member *member = &plan->members[index];
    frame_floor_circle((options->slot_count + BUNDLES * BUNDLE_SLOTS) * frame_bytes_mean(options) *
                       2);
    uint64_t taken = 0;
    for (uint64_t loop = 0; taken < plan->blocks; loop++) {
        const uint64_t bits = frame_random_next(&member->random);
        const size_t fill = LOOP_LEAST + frame_random_below(bits, LOOP_SPREAD);
        const size_t emptied = (LOOP_LEAST + frame_random_below(bits >> 32, LOOP_SPREAD)) * 4 / 5;
        for (size_t i = 0; i < emptied; i++) {
            next_slot(options, member, &member->empty_at, STRIDE_EMPTY);
        }
        inbox_empty(options, member);
        for (size_t i = 0; i < fill; i++) {
            block_take(options, member, next_slot(options, member, &member->fill_at, STRIDE_FILL));
        }
        taken += fill;
        if (loop % 2 == 0) {
            bundle_send(plan, member, fill / 4);
            taken += fill / 4;
        }
    }
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

static void member_init(const struct frame_options *options, struct member *member,
                        unsigned index) {
    member->index = index;
    member->random = frame_random_make(options->seed, index);
    member->slots = frame_map(options->slot_count * sizeof *member->slots);
    for (unsigned i = 0; i < BUNDLES; i++) {
        member->bundles[i].owner = member;
        bundle_put(&member->returned, &member->bundles[i]);
    }
}

int main(int argc, char **argv) {
    struct frame_options options = {
        .workload = &rptest,
        .seed = 71,
        .ops = 2000000,
        .warm_ops = 100000,
        .slot_count = 1000,
        .bytes_min = 8,
        .bytes_max = 16000,
        .thread_count = 4,
    };
    frame_options_parse(&options, argc, argv);
    if (options.thread_count < 2 || options.slot_count % STRIDE_FILL == 0 ||
        options.slot_count % STRIDE_EMPTY == 0) {
        frame_fail("rptest: at least 2 threads, and slots that no stride divides");
    }
    struct plan plan = {.options = &options};
    plan.members = frame_map(options.thread_count * sizeof *plan.members);
    for (unsigned i = 0; i < options.thread_count; i++) {
        member_init(&options, &plan.members[i], i);
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
