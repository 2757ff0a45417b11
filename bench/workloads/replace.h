/* The course of a workload whose operations each pick one of its slots at random. */
#pragma once

#include "frame.h"

/* One operation on a slot, which may be empty; returns its share of the checksum. */
typedef uint64_t replace_operation(const struct frame_options *options, struct frame_slot *slot,
                                   uint64_t bits);

/* Inlined, and the operation with it: there is no call through a pointer. */
static inline __attribute__((always_inline)) uint64_t
replace_some(const struct frame_options *options, struct frame_random *random,
             struct frame_slot *slots, uint64_t ops, replace_operation *operation) {
    uint64_t checksum = 0;
    for (uint64_t i = 0; i < ops; i++) {
        const uint64_t bits = frame_random_next(random);
        checksum += operation(options, &slots[frame_random_below(bits, options->slot_count)], bits);
    }
    return checksum;
}

/* The whole of it: warm-up, timed part, and the result line. `circle_bytes` is what the floor
 * allocator needs for the live blocks. */
static inline __attribute__((always_inline)) void replace_run(const struct frame_options *options,
                                                              size_t circle_bytes,
                                                              replace_operation *operation) {
    struct frame_slot *slots = frame_map(options->slot_count * sizeof *slots);
    struct frame_random random = frame_random_make(options->seed, 0);
    frame_floor_circle(circle_bytes);
    uint64_t checksum = replace_some(options, &random, slots, options->warm_ops, operation);
    frame_start();
    checksum += replace_some(options, &random, slots, options->ops, operation);
    frame_stop();
    checksum += frame_drop_all(slots, options->slot_count, options->check);
    frame_report(options, options->ops, checksum);
}
