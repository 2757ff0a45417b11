/* growth: blocks that grow by realloc, several at a time, until they reach the largest size and are
 * freed. Vectors grow by half of their size (the factor that lets the holes left behind be used
 * again), strings by the 1 to 32 bytes appended to them, without slack of their own. One vector from
 * 16 B to 1 GiB shows who moves pages instead of copying bytes. What is appended is written, one
 * byte in every `touch`, and compared again. */
#include "frame.h"

enum { VECTOR, STRING };
enum { APPENDED_MAX = 32 };

static uint64_t touch_bytes = 64;

static const struct frame_workload growth = {
    .name = "growth",
    .unit = "calls of realloc",
    .variants = (const char *const[]){"vector", "string", NULL},
    .own = (const struct frame_own_option[]){{"--touch", &touch_bytes}, {NULL, NULL}},
};

struct growing {
    unsigned char *block; /* NULL before the first growth */
    size_t bytes;
    uint64_t base; /* what the contents are made from; another for each life */
};

static unsigned char mark_of(const struct growing *growing, size_t at) {
    return (unsigned char)(frame_random_mix(growing->base + at) >> 56);
}

static void mark_look(const struct growing *growing, size_t at, bool check) {
    if (growing->block[at] != mark_of(growing, at) && check) {
        frame_fail_block(growing->block, "lost its contents");
    }
}

static uint64_t all_look_and_free(struct growing *growing, bool check) {
    for (size_t at = 0; at < growing->bytes; at += touch_bytes) {
        mark_look(growing, at, check);
    }
    free(growing->block);
    growing->block = NULL;
    return growing->base + growing->bytes;
}

static size_t bytes_next(const struct frame_options *options, const struct growing *growing,
                         uint64_t bits) {
    if (growing->block == NULL) {
        return options->bytes_min;
    }
    if (options->variant == STRING) {
        return growing->bytes + 1 + frame_random_below(bits >> 32, APPENDED_MAX);
    }
    const size_t bytes = growing->bytes + growing->bytes / 2;
    const bool last = growing->bytes < options->bytes_max && bytes > options->bytes_max;
    return last ? options->bytes_max : bytes;
}

/* Grows to `bytes`; looks at the first, the last and one other mark, and writes those that are new. */
static void grow(struct growing *growing, size_t bytes, uint64_t bits, bool check) {
    unsigned char *block = realloc(growing->block, bytes);
    if (block == NULL) {
        frame_fail_empty(bytes);
    }
    const size_t old_marks = (growing->bytes + touch_bytes - 1) / touch_bytes;
    growing->block = block;
    if (old_marks > 0) {
        mark_look(growing, 0, check);
        mark_look(growing, frame_random_below(bits >> 32, old_marks) * touch_bytes, check);
        mark_look(growing, (old_marks - 1) * touch_bytes, check);
    }
    for (size_t at = old_marks * touch_bytes; at < bytes; at += touch_bytes) {
        block[at] = mark_of(growing, at);
    }
    growing->bytes = bytes;
}

static uint64_t operations_run(const struct frame_options *options, struct frame_random *random,
                               struct growing *all, uint64_t ops) {
    uint64_t checksum = 0;
    for (uint64_t i = 0; i < ops; i++) {
        const uint64_t bits = frame_random_next(random);
        struct growing *growing = &all[frame_random_below(bits, options->slot_count)];
        size_t bytes = bytes_next(options, growing, bits);
        if (bytes > options->bytes_max) {
            checksum += all_look_and_free(growing, options->check);
            bytes = options->bytes_min;
        }
        if (growing->block == NULL) {
            growing->base = frame_random_mix(bits);
            growing->bytes = 0;
        }
        grow(growing, bytes, bits, options->check);
        checksum += bytes;
    }
    return checksum;
}

int main(int argc, char **argv) {
    struct frame_options options = {
        .workload = &growth,
        .seed = 29,
        .ops = 1000000,
        .warm_ops = 10000,
        .slot_count = 100,
        .bytes_min = 16,
        .bytes_max = 65536,
    };
    frame_options_parse(&options, argc, argv);
    if (touch_bytes == 0) {
        frame_fail("growth: touch cannot be zero");
    }
    struct growing *all = frame_map(options.slot_count * sizeof *all);
    struct frame_random random = frame_random_make(options.seed, 0);
    frame_floor_circle((options.slot_count + 2) * 2 * options.bytes_max);
    uint64_t checksum = operations_run(&options, &random, all, options.warm_ops);
    frame_start();
    checksum += operations_run(&options, &random, all, options.ops);
    frame_stop();
    for (size_t i = 0; i < options.slot_count; i++) {
        if (all[i].block != NULL) {
            checksum += all_look_and_free(&all[i], options.check);
        }
    }
    frame_report(&options, options.ops, checksum);
    return 0;
}
