/* latency: how long each single malloc and free takes, to the 99.999th percentile. Programs that
 * answer requests care for the slowest calls: those that refill a cache, map memory, give it back, or
 * wait for a lock. Each operation takes a block, exchanges it with the one in a random slot of a table
 * that all threads share, and frees that; both calls are timed by the processor's own clock. What
 * reading the clock costs is in every duration, and told as `extra.timer_ns`. With --keep below 100 the
 * heap shrinks: the table is full before the clock starts, and of each 100 slots only so many are
 * filled again (`extra.live_bytes`: the most, and `extra.kept_bytes`). */
#include "exchange.h"
#include "histogram.h"

static uint64_t keep_percent = 100;

static const struct frame_workload latency = {
    .name = "latency",
    .unit = "blocks allocated and freed",
    .own = (const struct frame_own_option[]){{"--keep", &keep_percent}, {NULL, NULL}},
};

struct member {
    struct histogram mallocs, frees;
    uint64_t checksum;
};

struct plan {
    const struct frame_options *options;
    struct exchange_slot *slots;
    struct member *members;
    uint64_t ops;      /* of each thread */
    size_t kept_count; /* of the slots: they are filled again */
    unsigned round;
};

/* What main prints when the frame asks it to. */
static struct {
    struct histogram *mallocs, *frees;
    double ns_per_tick;
} result;

static struct frame_slot block_take(const struct plan *plan, struct member *member, uint64_t bits) {
    const size_t bytes = frame_bytes_pick(plan->options, bits);
    struct frame_slot taken;
    const uint64_t before = histogram_ticks();
    unsigned char *block = malloc(bytes);
    histogram_count(&member->mallocs, histogram_ticks() - before);
    frame_mark(&taken, block, frame_stamp(bytes, frame_random_mix(bits)));
    return taken;
}

static uint64_t operation_run(const struct plan *plan, struct member *member, uint64_t bits) {
    const size_t slot = frame_random_below(bits, plan->options->slot_count);
    struct frame_slot own = {NULL, 0};
    if (slot < plan->kept_count) {
        own = block_take(plan, member, bits);
    }
    exchange_swap(&plan->slots[slot], &own);
    if (own.block == NULL) {
        return 0;
    }
    frame_look(&own, plan->options->check);
    const uint64_t before_free = histogram_ticks();
    free(own.block);
    histogram_count(&member->frees, histogram_ticks() - before_free);
    return own.stamp;
}

static void worker(unsigned index, void *argument) {
    struct plan *plan = argument;
    struct member *member = &plan->members[index];
    struct frame_random random =
        frame_random_make(plan->options->seed, index + plan->round * plan->options->thread_count);
    memset(&member->mallocs, 0, sizeof member->mallocs);
    memset(&member->frees, 0, sizeof member->frees);
    frame_floor_circle(2 * plan->options->slot_count * frame_bytes_mean(plan->options) + 65536);
    for (uint64_t i = 0; i < plan->ops; i++) {
        member->checksum += operation_run(plan, member, frame_random_next(&random));
    }
}

static void operations_run(struct plan *plan, uint64_t ops) {
    plan->ops = ops / plan->options->thread_count;
    frame_threads_run(plan->options->thread_count, worker, plan);
    plan->round++;
}

/* What a heap that shrinks begins with. */
static void slots_fill(const struct plan *plan) {
    struct frame_random random = frame_random_make(plan->options->seed, UINT32_MAX);
    uint64_t live_bytes = 0;
    uint64_t kept_bytes = 0;
    for (size_t i = 0; i < plan->options->slot_count; i++) {
        const uint64_t bits = frame_random_next(&random);
        const size_t bytes = frame_bytes_pick(plan->options, bits);
        frame_take(&plan->slots[i].held, bytes, frame_random_mix(bits));
        live_bytes += bytes;
        kept_bytes += i < plan->kept_count ? bytes : 0;
    }
    frame_extra("live_bytes", live_bytes);
    frame_extra("kept_bytes", kept_bytes);
}

static void latency_add(struct text *text) {
    text_add(text, "\"latency\":{\"malloc\":");
    histogram_print(text, result.mallocs, result.ns_per_tick);
    text_add(text, ",\"free\":");
    histogram_print(text, result.frees, result.ns_per_tick);
    text_add(text, "},");
}

int main(int argc, char **argv) {
    struct frame_options options = {
        .workload = &latency,
        .seed = 71,
        .ops = 2000000,
        .warm_ops = 200000,
        .slot_count = 10000,
        .bytes_min = 16,
        .bytes_max = 1024,
    };
    frame_options_parse(&options, argc, argv);
    struct plan plan = {.options = &options};
    struct histogram_clock clock;
    plan.slots = frame_map(options.slot_count * sizeof *plan.slots);
    plan.members = frame_map(options.thread_count * sizeof *plan.members);
    plan.kept_count = options.slot_count * keep_percent / 100;
    histogram_clock_start(&clock);
    if (plan.kept_count < options.slot_count) {
        slots_fill(&plan);
    } else {
        operations_run(&plan, options.warm_ops);
    }
    operations_run(&plan, options.ops);
    frame_stop();
    result.ns_per_tick = histogram_ns_per_tick(&clock);
    result.mallocs = &plan.members[0].mallocs;
    result.frees = &plan.members[0].frees;
    uint64_t checksum = plan.members[0].checksum;
    for (unsigned i = 1; i < options.thread_count; i++) {
        histogram_merge(result.mallocs, &plan.members[i].mallocs);
        histogram_merge(result.frees, &plan.members[i].frees);
        checksum += plan.members[i].checksum;
    }
    frame_extra("timer_ns", (uint64_t)((double)histogram_empty_ticks() * result.ns_per_tick));
    checksum += exchange_drop_all(plan.slots, options.slot_count, options.check);
    frame_report_with(&options, plan.ops * options.thread_count, checksum, latency_add);
    return 0;
}
