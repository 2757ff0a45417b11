/* The frame that every benchmark workload stands in: options, seeded random numbers, timing,
 * checks of block contents, and one line of JSON at the end that also proves, from inside the
 * measured process, which file each name of the malloc family resolved to.
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

#if defined(__GNUC__) && !defined(__x86_64__) && !defined(__aarch64__)
#error "the workloads know how to wait politely only on x86-64 and aarch64"
#endif

enum frame_order { FRAME_LIFO, FRAME_FIFO };

/* What a run is asked to do. A workload fills in its defaults; the command line changes them. */
struct frame_options {
    uint64_t seed;
    uint64_t ops;       /* operations of the timed part, all threads together */
    uint64_t warm_ops;  /* operations before the clock starts */
    size_t slot_count;  /* blocks that may live at once, per thread */
    size_t bytes_min;   /* block sizes, both ends included */
    size_t bytes_max;   /* */
    size_t round_count; /* larson: replacements per slot in one thread's life */
    unsigned thread_count;
    enum frame_order order;
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

void frame_options_parse(struct frame_options *options, const char *workload, int argc,
                         char **argv);

/* Zeroed, populated memory that does not come from malloc. Ends the program when there is none. */
void *frame_map(size_t bytes);

/* Around the timed part; called once each, by the main thread. */
void frame_start(void);
void frame_stop(void);

/* Prints the result line. `unit` says what one operation is. */
void frame_print(const struct frame_options *options, const char *workload, const char *unit,
                 uint64_t ops, uint64_t checksum);

/* Tells the floor allocator, when it is the one under test, that from here on this thread's blocks
 * may be reused in a circle of `bytes`; 0 gives the circle back. Every other allocator never hears
 * of it. */
void frame_floor_circle(size_t bytes);

/* Runs `body(index, argument)` in `count` threads. All of them wait until every one is ready, then
 * the clock starts; it stops when the last has returned. With a count of 1 the body still runs in a
 * thread of its own. */
void frame_threads_run(unsigned count, void (*body)(unsigned index, void *argument),
                       void *argument);

_Noreturn void frame_fail(const char *what);
_Noreturn void frame_fail_thread(int error);
_Noreturn void frame_fail_contents(const struct frame_slot *slot);
_Noreturn void frame_fail_empty(size_t bytes);

/* A step of splitmix64 (Steele, Lea, Flood 2014): short, passes BigCrush, any seed will do. */
static inline uint64_t frame_random_next(struct frame_random *random) {
    uint64_t mixed = random->state += 0x9e3779b97f4a7c15u;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return mixed ^ (mixed >> 31);
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

static inline size_t frame_bytes_pick(const struct frame_options *options, uint64_t random) {
    return options->bytes_min +
           frame_random_below(random >> 32, options->bytes_max - options->bytes_min + 1);
}

/* Takes a block of `bytes` (at least 8) and marks its first eight bytes and its last one. The
 * builtin is one store: under -fno-builtin a plain memcpy would be a call of the C library. */
static inline void frame_take(struct frame_slot *slot, size_t bytes, uint64_t random) {
    unsigned char *block = malloc(bytes);
    uint64_t stamp = (random & ~(uint64_t)0xffffffffu) | bytes;
    if (__builtin_expect(block == NULL, 0)) {
        frame_fail_empty(bytes);
    }
    __builtin_memcpy(block, &stamp, sizeof stamp);
    block[bytes - 1] = (unsigned char)(stamp >> 56);
    slot->block = block;
    slot->stamp = stamp;
}

/* Frees the slot's block after comparing its marks; returns its share of the checksum. With `check`
 * false the same work is done and the outcome ignored, so that the floor allocator, whose blocks
 * overlap, runs the same instructions. */
static inline uint64_t frame_drop(struct frame_slot *slot, bool check) {
    uint64_t stamp = slot->stamp, first;
    __builtin_memcpy(&first, slot->block, sizeof first);
    unsigned char last = slot->block[(uint32_t)stamp - 1];
    if (__builtin_expect(first != stamp || last != (unsigned char)(stamp >> 56), 0) && check) {
        frame_fail_contents(slot);
    }
    free(slot->block);
    slot->block = NULL;
    return stamp;
}

/* What a spinning thread does between two looks. */
static inline void frame_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    __asm__ volatile("yield");
#endif
}
