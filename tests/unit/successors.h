// Threads of a short life, played by the calling thread, whose own cache is put aside meanwhile.
#pragma once

#include "isolate.h"

#include "api/alloc.h"
#include "base/bits.h"
#include "config/options.h"
#include "control/check.h"
#include "control/stats.h"
#include "counted.h"
#include "fake_os.h"
#include "heap/heap_check.h"
#include "os/os.h"
#include "thread/lifecycle.h"
#include "thread/maintenance.h"

// What a node holds, and then some.
enum { BLOCKS = 40, BYTES = 64, ROOM = 100 };

static struct thread_cache *mine;
static bool says_keep;
static unsigned told_soon, told_late;

static inline bool on_succession(bool was_soon) {
    told_soon += was_soon;
    told_late += !was_soon;
    return says_keep;
}

static inline void check(void) {
    assert_int_equal(check_all(), 0);
}

static inline uint64_t gauge(enum gauge gauge) {
    struct stats stats;
    stats_collect(&stats);
    return stats.gauge[gauge];
}

static inline void begin_thread(void) {
    thread_cache = (struct thread_cache *)(uintptr_t)&cache_of_new_thread;
    assert_non_null(lifecycle_attach());
}

static inline void end_thread(void) {
    lifecycle_detach();
    thread_cache = mine;
}

// However long this machine let it wait, it came soon, and lives shortly.
static inline void be_short(void) {
    thread_cache->came_soon = true;
    thread_cache->passed_ticks = os_ticks();
}

static inline void use(unsigned count, size_t bytes) {
    static void *blocks[1000];
    assert_true(count <= ARRAY_COUNT(blocks));
    for (unsigned i = 0; i < count; i++) {
        blocks[i] = hakmem_alloc(bytes);
        assert_non_null(blocks[i]);
    }
    for (unsigned i = 0; i < count; i++) {
        hakmem_dealloc(blocks[i]);
    }
}

static inline bool is_kept(struct thread_cache *cache) {
    return atomic_load_relaxed(&cache->state) == CACHE_KEPT;
}

// A thread that leaves blocks behind where it may.
static inline struct thread_cache *live_shortly(void) {
    begin_thread();
    struct thread_cache *cache = thread_cache;
    use(BLOCKS, BYTES);
    be_short();
    end_thread();
    return cache;
}

// The same; a machine that let it wait for too long is tried again.
static inline struct thread_cache *leave_blocks(void) {
    struct thread_cache *cache = live_shortly();
    for (unsigned i = 0; i < 1000 && !is_kept(cache); i++) {
        cache = live_shortly();
    }
    assert_true(is_kept(cache));
    return cache;
}

static inline void start(void) {
    options.watched_operations = 0;
    atomic_store_relaxed(&knobs_hooks.succession, on_succession);
    says_keep = true;
    mine = lifecycle_attach();
    // The first one tells nothing: it has a new cache.
    assert_false(is_kept(live_shortly()));
    assert_int_equal(told_soon + told_late, 0);
}

static inline uint64_t cached(const struct thread_cache *cache) {
    return cache_block_count(cache, size_class_index(BYTES));
}

static inline uint64_t used_blocks(const struct thread_cache *cache) {
    struct heap_class_totals totals;
    heap_class_totals(&cache->heap, size_class_index(BYTES), &totals);
    return totals.used_blocks;
}

static inline void tick_after(uint64_t ms) {
    fake_os_pass_ms(ms);
    thread_cache->pace_ticks = 0;
    assert_true(maintenance_tick(thread_cache));
    check();
}
