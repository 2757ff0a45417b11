// A process with one thread that ticks, and others that have allocated and sleep.
#pragma once

#include "isolate.h"

#include <pthread.h>
#include <string.h>

#include "api/alloc.h"
#include "config/options.h"
#include "control/check.h"
#include "fake_os.h"
#include "heap/heap_check.h"
#include "thread/lifecycle.h"
#include "thread/maintenance.h"

static inline void start(void) {
    assert_non_null(lifecycle_attach());
    options.watched_operations = 0;
    // The first look at the clock starts all clocks.
    thread_cache->pace_ticks = 0;
    assert_true(maintenance_tick(thread_cache));
}

// Lets time pass and ticks once.
static inline void tick_after(uint64_t ms) {
    fake_os_pass_ms(ms);
    thread_cache->pace_ticks = 0;
    assert_true(maintenance_tick(thread_cache));
    assert_int_equal(check_all(), 0);
}

static inline uint64_t slab_bytes(const struct thread_cache *cache) {
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        struct heap_class_totals totals;
        heap_class_totals(&cache->heap, i, &totals);
        bytes += totals.slab_bytes;
    }
    return bytes;
}

struct idle {
    pthread_t thread;
    pthread_barrier_t barrier;
    struct thread_cache *cache;
    void *kept[10];
};

static inline void *allocate_and_idle(void *argument) {
    struct idle *idle = argument;
    static __thread void *blocks[2000];
    for (unsigned i = 0; i < ARRAY_COUNT(blocks); i++) {
        blocks[i] = hakmem_alloc(1024);
        memset(blocks[i], 1, 1024);
    }
    for (unsigned i = 0; i < ARRAY_COUNT(blocks); i++) {
        if (i % 200 == 100) {
            idle->kept[i / 200] = blocks[i];
        } else {
            hakmem_dealloc(blocks[i]);
        }
    }
    cache_empty(thread_cache);
    idle->cache = thread_cache;
    pthread_barrier_wait(&idle->barrier);
    pthread_barrier_wait(&idle->barrier);
    return NULL;
}

static inline void begin_idle(struct idle *idle) {
    pthread_barrier_init(&idle->barrier, NULL, 2);
    assert_int_equal(pthread_create(&idle->thread, NULL, allocate_and_idle, idle), 0);
    pthread_barrier_wait(&idle->barrier);
}

static inline void end_idle(struct idle *idle) {
    pthread_barrier_wait(&idle->barrier);
    pthread_join(idle->thread, NULL);
    assert_int_equal(check_all(), 0);
}
