// What the concurrency tests share: threads that start together, blocks that know what they hold, and
// the end of each test, at which every block is back and every invariant holds.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/alloc.h"
#include "config/options.h"
#include "control/check.h"
#include "control/stats.h"
#include "thread/lifecycle.h"
#include "thread/maintenance.h"

// Operations of a loop: a share of them in each flavour (cmake/Testing.cmake).
#define OPERATIONS(count) ((count) / REPEAT_DIVISOR)

#define THREADS_MAX 16

// A failure in a thread of its own cannot use cmocka's jump.
#define REQUIRE(condition)                                                          \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                                \
        }                                                                           \
    } while (0)

// ---- Random numbers: one seed for a run, one stream for each thread

static inline uint64_t base_seed(void) {
    const char *text = getenv("CONCURRENCY_SEED");
    return text == NULL ? 1 : strtoull(text, NULL, 10);
}

static inline uint64_t random_start(unsigned stream) {
    return (base_seed() + stream) * UINT64_C(0x9E3779B97F4A7C15) | 1;
}

static inline unsigned random_below(uint64_t *state, unsigned end) {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return (unsigned)(*state * UINT64_C(0x2545F4914F6CDD1D) >> 33) % end;
}

// ---- Blocks

// Sizes as programs use them: most small, some of several pages, few large.
static inline size_t random_bytes(uint64_t *state) {
    const unsigned kind = random_below(state, 1000);
    if (kind < 800) {
        return 16 + random_below(state, 1008);
    }
    if (kind < 990) {
        return 1024 + random_below(state, 31 * 1024);
    }
    return 64 * 1024 + random_below(state, 256 * 1024);
}

struct block {
    uint64_t bytes;
    uint64_t mark;  // of its address and size: a block that moved or was cut is noticed
};

static inline unsigned char block_byte(const struct block *block) {
    return (unsigned char)(block->mark >> 7 | 1);
}

// Writes what the block is, and fills both ends, where a neighbour would write. At least 32 bytes.
static inline struct block *block_mark(struct block *block, size_t bytes) {
    REQUIRE(((uintptr_t)block & 15) == 0);
    block->bytes = bytes;
    block->mark = ((uintptr_t)block ^ bytes) * UINT64_C(0x9E3779B97F4A7C15);
    unsigned char *data = (unsigned char *)(block + 1);
    const size_t rest = bytes - sizeof *block;
    const size_t edge = rest < 64 ? rest : 64;
    memset(data, block_byte(block), edge);
    memset(data + rest - edge, block_byte(block), edge);
    return block;
}

static inline struct block *block_new(size_t bytes) {
    struct block *block = hakmem_alloc(bytes);
    REQUIRE(block != NULL);
    return block_mark(block, bytes);
}

static inline void block_verify(const struct block *block) {
    REQUIRE(block->mark == ((uintptr_t)block ^ block->bytes) * UINT64_C(0x9E3779B97F4A7C15));
    const unsigned char *data = (const unsigned char *)(block + 1);
    const size_t rest = block->bytes - sizeof *block;
    const size_t edge = rest < 64 ? rest : 64;
    for (size_t i = 0; i < edge; i++) {
        REQUIRE(data[i] == block_byte(block));
        REQUIRE(data[rest - 1 - i] == block_byte(block));
    }
}

static inline void block_delete(struct block *block) {
    block_verify(block);
    // Whoever finds the block handed out twice finds no mark.
    block->mark = 0;
    hakmem_dealloc(block);
}

// ---- Threads

struct worker {
    pthread_t thread;
    unsigned index;
    uint64_t random;
    pthread_barrier_t *start;
    void (*work)(struct worker *worker);
};

static inline void *worker_main(void *argument) {
    struct worker *worker = argument;
    pthread_barrier_wait(worker->start);
    worker->work(worker);
    return NULL;
}

// Runs work() in `count` threads that start at the same moment, and waits for their end.
static inline void run_workers(unsigned count, void (*work)(struct worker *worker)) {
    struct worker workers[THREADS_MAX];
    pthread_barrier_t start;
    REQUIRE(count <= THREADS_MAX);
    REQUIRE(pthread_barrier_init(&start, NULL, count) == 0);
    for (unsigned i = 0; i < count; i++) {
        workers[i] =
            (struct worker){.index = i, .random = random_start(i), .start = &start, .work = work};
        REQUIRE(pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]) == 0);
    }
    for (unsigned i = 0; i < count; i++) {
        REQUIRE(pthread_join(workers[i].thread, NULL) == 0);
    }
    pthread_barrier_destroy(&start);
}

// ---- The end of a test

// All threads but this one have ended or hold nothing: no block is in use, no slab is left, nothing
// was reported.
static inline void require_all_back(void) {
    struct stats stats;
    maintenance_reclaim();
    assert_int_equal(check_all(), 0);
    stats_collect(&stats);
    for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        if (stats.class[i].live_blocks != 0) {
            print_error("%llu blocks of %llu bytes are lost\n",
                        (unsigned long long)stats.class[i].live_blocks,
                        (unsigned long long)stats.class[i].block_bytes);
        }
    }
    assert_int_equal(stats.gauge[GAUGE_live_blocks], 0);
    assert_int_equal(stats.gauge[GAUGE_live_bytes], 0);
    assert_int_equal(stats.gauge[GAUGE_cached_bytes], 0);
    assert_int_equal(stats.gauge[GAUGE_slab_bytes], 0);
    assert_int_equal(stats.gauge[GAUGE_large_bytes], 0);
    assert_int_equal(stats.gauge[GAUGE_huge_bytes], 0);
}

static inline uint64_t counter_now(enum counter counter) {
    struct stats stats;
    stats_collect(&stats);
    return stats.counter[counter];
}

static inline uint64_t gauge_now(enum gauge gauge) {
    struct stats stats;
    stats_collect(&stats);
    return stats.gauge[gauge];
}

static inline int finish_test(void **state) {
    (void)state;
    require_all_back();
    assert_int_equal(counter_now(COUNTER_misuses), 0);
    return 0;
}
