/* fork_heavy: a process with a heap forks children that work on their copy of it for a moment and
 * end, as servers with a process per request, shells, and databases that write a snapshot from a
 * child do. What is measured is the fork, what the allocator does around it, and the pages that the
 * child's frees and mallocs make the kernel copy. The parent's heap changes between two forks. */
#include "frame.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct frame_workload fork_heavy = {
    .name = "fork_heavy",
    .unit = "children forked and ended",
};

struct heap {
    const struct frame_options *options;
    struct frame_slot *slots;
    struct frame_random random;
};

/* What a child tells its parent; in memory that both share. */
struct statement {
    uint64_t checksum;
    uint64_t private_bytes;
};

static uint64_t blocks_replace(struct heap *heap) {
    const struct frame_options *options = heap->options;
    uint64_t checksum = 0;
    for (size_t i = 0; i < options->round_count; i++) {
        const uint64_t bits = frame_random_next(&heap->random);
        struct frame_slot *slot = &heap->slots[frame_random_below(bits, options->slot_count)];
        checksum += frame_drop(slot, options->check);
        frame_take(slot, frame_bytes_pick(options, bits), frame_random_mix(bits));
    }
    return checksum;
}

/* One child; `measured`: it also looks how much memory it has for itself. */
static uint64_t child_run(struct heap *heap, struct statement *statement, bool measured) {
    const pid_t child = fork();
    if (child < 0) {
        frame_fail("fork_heavy: no child could be forked");
    }
    if (child == 0) {
        /* Its random numbers are its own: the parent's go on where they are. */
        heap->random.state = frame_random_mix(heap->random.state);
        statement->checksum = blocks_replace(heap);
        if (measured) {
            statement->private_bytes = frame_private_dirty();
        }
        _exit(0);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0) {
        frame_fail_child(status);
    }
    return statement->checksum;
}

static uint64_t children_run(struct heap *heap, struct statement *statement, uint64_t count) {
    uint64_t checksum = 0;
    for (uint64_t i = 0; i < count; i++) {
        checksum += child_run(heap, statement, false);
        checksum += blocks_replace(heap);
    }
    return checksum;
}

int main(int argc, char **argv) {
    struct frame_options options = {
        .workload = &fork_heavy,
        .seed = 41,
        .ops = 400,
        .warm_ops = 10,
        .slot_count = 20000,
        .bytes_min = 16,
        .bytes_max = 1024,
        .round_count = 200,
    };
    frame_options_parse(&options, argc, argv);
    struct heap heap = {.options = &options, .random = frame_random_make(options.seed, 0)};
    struct statement *statement =
        mmap(NULL, sizeof *statement, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (statement == MAP_FAILED) {
        frame_fail("fork_heavy: no shared memory");
    }
    heap.slots = frame_map(options.slot_count * sizeof *heap.slots);
    frame_floor_circle(2 * options.slot_count * options.bytes_max);
    for (size_t i = 0; i < options.slot_count; i++) {
        const uint64_t bits = frame_random_next(&heap.random);
        frame_take(&heap.slots[i], frame_bytes_pick(&options, bits), frame_random_mix(bits));
    }
    uint64_t checksum = children_run(&heap, statement, options.warm_ops);
    frame_start();
    checksum += children_run(&heap, statement, options.ops);
    frame_stop();
    checksum += child_run(&heap, statement, true);
    frame_extra("child_private_bytes", statement->private_bytes);
    checksum += frame_drop_all(heap.slots, options.slot_count, options.check);
    frame_report(&options, options.ops, checksum);
    return 0;
}
