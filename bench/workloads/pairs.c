/* pairs: nothing but calls of malloc and free, `slots` of each in turn, newest block freed first.
 * Made for counting instructions: the difference between two runs of different `ops` is exactly
 * the cost of the calls and of a loop of a few instructions. With --ask 1 each block's usable size is
 * asked after its malloc and before its free, as redis and ruby do; with --resize 1 it is given to realloc once,
 * for the size that it has. */
#include "frame.h"

#include <malloc.h>

static uint64_t asks = 0, resizes = 0;

/* In line with constants, so that a loop of mallocs and frees alone has no test. */
static inline __attribute__((always_inline)) void rounds_run(const struct frame_options *options,
                                                             void **blocks, uint64_t rounds,
                                                             bool asking, bool resizing) {
    const size_t count = options->slot_count;
    for (uint64_t round = 0; round < rounds; round++) {
        for (size_t i = 0; i < count; i++) {
            blocks[i] = malloc(options->bytes_min);
            if (asking) {
                malloc_usable_size(blocks[i]);
            }
            if (resizing) {
                blocks[i] = realloc(blocks[i], options->bytes_min);
            }
        }
        for (size_t i = count; i-- > 0;) {
            if (asking) {
                malloc_usable_size(blocks[i]);
            }
            free(blocks[i]);
        }
    }
}

/* The tightest loop: one block, no array. */
static void single_run(size_t bytes, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        free(malloc(bytes));
    }
}

static void some_run(const struct frame_options *options, void **blocks, uint64_t count) {
    if (asks != 0) {
        rounds_run(options, blocks, count / options->slot_count, true, false);
    } else if (resizes != 0) {
        rounds_run(options, blocks, count / options->slot_count, false, true);
    } else if (options->slot_count == 1) {
        single_run(options->bytes_min, count);
    } else {
        rounds_run(options, blocks, count / options->slot_count, false, false);
    }
}

/* Never inlined, and visible by its name: callgrind counts what happens inside. */
__attribute__((noinline)) void pairs_run(const struct frame_options *options, void **blocks,
                                         uint64_t count);

void pairs_run(const struct frame_options *options, void **blocks, uint64_t count) {
    some_run(options, blocks, count);
}

static const struct frame_workload pairs = {
    .name = "pairs",
    .unit = "pairs of malloc and free",
    .own =
        (const struct frame_own_option[]){{"--ask", &asks}, {"--resize", &resizes}, {NULL, NULL}},
};

int main(int argc, char **argv) {
    struct frame_options options = {
        .workload = &pairs,
        .seed = 1,
        .ops = 20000000,
        .warm_ops = 10000,
        .bytes_min = 16,
        .bytes_max = 16,
    };
    frame_options_parse(&options, argc, argv);
    if (asks != 0 && resizes != 0) {
        frame_fail("pairs: either --ask or --resize");
    }
    void **blocks = frame_map(options.slot_count * sizeof *blocks);
    frame_floor_circle(2 * options.slot_count * options.bytes_min);
    some_run(&options, blocks, options.warm_ops);
    frame_start();
    pairs_run(&options, blocks, options.ops);
    frame_stop();
    frame_report(&options, options.ops / options.slot_count * options.slot_count, 0);
    return 0;
}
