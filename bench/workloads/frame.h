/* The frame that every benchmark workload stands in: options, seeded random numbers, timing,
 * checks of block contents, and one line of JSON at the end that also proves, from inside the
 * measured process, which file serves the malloc family.
 *
 * A workload does a fixed amount of work, so that its checksum depends only on its options and is
 * the same on every allocator. All bookkeeping memory is mapped directly, never allocated: what is
 * measured is the allocator under test and nothing else.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

#if !defined(__x86_64__) && !defined(__aarch64__)
#error "the workloads know how to wait politely only on x86-64 and aarch64"
#endif

enum frame_sizes { FRAME_UNIFORM, FRAME_PARETO };

/* An option that one workload has for itself: a number. */
struct frame_own_option {
    const char *name; /* with its dashes; NULL ends the list */
    uint64_t *value;
};

struct frame_workload {
    const char *name;
    const char *unit;                   /* what one operation is, in the plural */
    const char *const *variants;        /* words for --variant, NULL at the end; NULL: none */
    const struct frame_own_option *own; /* NULL: none */
};

/* What a run is asked to do. A workload fills in its defaults, where they are not 1 for slots, rounds
 * and threads, and true for check; the command line changes them. */
struct frame_options {
    const struct frame_workload *workload;
    uint64_t seed;
    uint64_t ops;          /* operations of the timed part, all threads together */
    uint64_t warm_ops;     /* operations before the clock starts */
    size_t slot_count;     /* blocks that may live at once, per thread */
    size_t bytes_min;      /* block sizes, both ends included */
    size_t bytes_max;      /* */
    size_t round_count;    /* repetitions; each workload says of what */
    uint64_t idle_ms;      /* how long the process lives on after its work, doing nothing */
    uint64_t pareto_scale; /* from bytes_min and bytes_max: see frame_bytes_pick */
    unsigned thread_count;
    unsigned variant; /* index into the workload's variants */
    enum frame_sizes sizes;
    bool check; /* a freed block whose marks have changed ends the program */
};

/* One live block. The stamp is known here and written into the block, so freeing can compare. */
struct frame_slot {
    unsigned char *block;
    uint64_t stamp; /* block bytes in the low 32 bits, random above */
};

struct frame_random {
    uint64_t state;
};

void frame_options_parse(struct frame_options *options, int argc, char **argv);

/* Zeroed, populated memory that does not come from malloc. Ends the program when there is none.
 * The result line tells how much of it there is: `extra.frame_bytes`. */
void *frame_map(size_t bytes);

/* Around the timed part, by the main thread. A second start begins anew, a second stop counts. */
void frame_start(void);
void frame_stop(void);

/* Resident bytes of the whole process, exact to the page; slow: the kernel walks the page tables. */
uint64_t frame_rss_exact(void);
/* The process's high-water mark; and its pages that nobody shares, a forked child's own cost. */
uint64_t frame_rss_peak(void);
uint64_t frame_private_dirty(void);

/* A point of the row's `rss_series`, at most one per millisecond since frame_start(); when there is
 * no room left, every second point is dropped. */
void frame_series_sample(void);

/* One more figure of the result line, under `extra`. */
void frame_extra(const char *name, uint64_t value);

/* Replaces the row's peak and end, which are the process's own, by those of a process it started. */
void frame_memory_set(uint64_t peak_rss_bytes, uint64_t end_rss_bytes);

/* Sleeps for `duration_ms` and samples the series meanwhile; calls `beat`, if any, each
 * millisecond. */
void frame_idle(uint64_t duration_ms, void (*beat)(void *argument), void *argument);

/* Waits out --idle-ms, then prints the result line. All blocks should be freed by now, except
 * those whose survival is the point. */
void frame_report(const struct frame_options *options, uint64_t ops, uint64_t checksum);

/* The same, for a workload that has members of its own: `more` adds them, each with a comma after
 * it, to the text. */
void frame_report_with(const struct frame_options *options, uint64_t ops, uint64_t checksum,
                       void (*more)(struct text *text));

/* Writes a line to standard output. */
void frame_write(struct text *text);

/* Tells the floor allocator, when it is the one under test, that from here on this thread's blocks
 * may be reused in a circle of `bytes`; 0 gives the circle back. Every other allocator never hears
 * of it. */
void frame_floor_circle(size_t bytes);

/* Runs `body(index, argument)` in `count` threads and joins them. All of them wait until every one
 * is ready, then the clock starts; the caller stops it. With a count of 1 the body still runs in a
 * thread of its own. */
void frame_threads_run(unsigned count, void (*body)(unsigned index, void *argument),
                       void *argument);

/* Rounds in which each thread does `each` operations, so many that all threads do at least `ops`. */
static inline uint64_t frame_rounds(const struct frame_options *options, uint64_t ops,
                                    uint64_t each) {
    const uint64_t all = options->thread_count * each;
    return (ops + all - 1) / all;
}

/* Keeps the calling thread on one processor of those that the process may use: the `index`-th, counted
 * round. For a run whose throughput is compared with itself, where it shall not say how two threads
 * lay. Where the system refuses, the thread goes on as it was. */
void frame_pin(unsigned index);

/* Nanoseconds of the monotonic clock. */
uint64_t frame_now_ns(void);

_Noreturn void frame_fail(const char *what);
_Noreturn void frame_fail_thread(int error);
_Noreturn void frame_fail_contents(const struct frame_slot *slot);
_Noreturn void frame_fail_block(const void *block, const char *what);
_Noreturn void frame_fail_child(int status);
_Noreturn void frame_fail_empty(size_t bytes);

/* A step of splitmix64 (Steele, Lea, Flood 2014): short, passes BigCrush, any seed will do. */
static inline uint64_t frame_random_next(struct frame_random *random) {
    uint64_t mixed = random->state += 0x9e3779b97f4a7c15u;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return mixed ^ (mixed >> 31);
}

/* More bits from bits that were already used to choose something. */
static inline uint64_t frame_random_mix(uint64_t bits) {
    return bits * 0x9e3779b97f4a7c15u;
}

/* The low half of `random` mapped to [0, count) without a division. */
static inline size_t frame_random_below(uint64_t random, size_t count) {
    return (size_t)(((random & 0xffffffffu) * count) >> 32);
}

/* A thread's own stream: streams of different indices do not overlap in any run we could finish. */
static inline struct frame_random frame_random_make(uint64_t seed, unsigned index) {
    struct frame_random random = {seed ^ ((uint64_t)index << 40)};
    random.state = frame_random_next(&random);
    return random;
}

/* A block size from the high half of `random`: uniform, or Pareto with a shape of 1, cut off at
 * bytes_max (the inverse of its distribution function, in 32-bit fixed point). */
static inline size_t frame_bytes_pick(const struct frame_options *options, uint64_t random) {
    if (__builtin_expect(options->sizes == FRAME_PARETO, 0)) {
        const uint64_t rest = (1ull << 32) - (((random >> 32) * options->pareto_scale) >> 32);
        return (size_t)(((uint64_t)options->bytes_min << 32) / rest);
    }
    return options->bytes_min +
           frame_random_below(random >> 32, options->bytes_max - options->bytes_min + 1);
}

/* An upper estimate of the mean block size, to size the floor allocator's circle. */
static inline size_t frame_bytes_mean(const struct frame_options *options) {
    if (options->sizes == FRAME_PARETO) {
        const int doublings =
            __builtin_clzll(options->bytes_min) - __builtin_clzll(options->bytes_max);
        return options->bytes_min * (size_t)(doublings + 1);
    }
    return (options->bytes_min + options->bytes_max) / 2;
}

/* What a block of `bytes` is marked with: the upper half of `random`, and its size. */
static inline uint64_t frame_stamp(size_t bytes, uint64_t random) {
    return (random & ~(uint64_t)0xffffffffu) | bytes;
}

/* Marks a block of the stamp's size (at least 8): its first eight bytes and its last one. The
 * builtin is one store: under -fno-builtin a plain memcpy would be a call of the C library. */
static inline void frame_mark(struct frame_slot *slot, unsigned char *block, uint64_t stamp) {
    if (__builtin_expect(block == NULL, 0)) {
        frame_fail_empty((uint32_t)stamp);
    }
    __builtin_memcpy(block, &stamp, sizeof stamp);
    block[(uint32_t)stamp - 1] = (unsigned char)(stamp >> 56);
    slot->block = block;
    slot->stamp = stamp;
}

/* Takes a block of `bytes` (at least 8) and marks it. */
static inline void frame_take(struct frame_slot *slot, size_t bytes, uint64_t random) {
    frame_mark(slot, malloc(bytes), frame_stamp(bytes, random));
}

/* Compares a block's marks with its stamp. With `check` false the same work is done and the
 * outcome ignored, so that the floor allocator, whose blocks overlap, runs the same instructions. */
static inline void frame_look(const struct frame_slot *slot, bool check) {
    uint64_t stamp = slot->stamp, first;
    __builtin_memcpy(&first, slot->block, sizeof first);
    unsigned char last = slot->block[(uint32_t)stamp - 1];
    if (__builtin_expect(first != stamp || last != (unsigned char)(stamp >> 56), 0) && check) {
        frame_fail_contents(slot);
    }
}

/* Frees the slot's block after comparing its marks; returns its share of the checksum. */
static inline uint64_t frame_drop(struct frame_slot *slot, bool check) {
    frame_look(slot, check);
    free(slot->block);
    slot->block = NULL;
    return slot->stamp;
}

/* Frees every block that the slots hold; returns their share of the checksum. */
static inline uint64_t frame_drop_all(struct frame_slot *slots, size_t count, bool check) {
    uint64_t checksum = 0;
    for (size_t i = 0; i < count; i++) {
        if (slots[i].block != NULL) {
            checksum += frame_drop(&slots[i], check);
        }
    }
    return checksum;
}

/* What a spinning thread does between two looks. */
static inline void frame_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    __asm__ volatile("yield");
#endif
}
