// Research: what is counted, and that switching it on and off on a running process changes nothing else.
#include "isolate.h"

#include <pthread.h>
#include <stdlib.h>

#include "api/alloc.h"
#include "config/options.h"
#include "control/check.h"
#include "control/stats.h"
#include "fake_os.h"
#include "heap/slab.h"
#include "space/metadata.h"
#include "thread/lifecycle.h"
#include "thread/maintenance.h"
#include "thread/research.h"

static void set_research(const char *value) {
    lifecycle_start();
    assert_true(options_set("research", value));
}

// A slow path that ticks: the thread follows. Its block is never freed.
static void tick(void) {
    require(hakmem_alloc(100 * KIB) != NULL);
    thread_cache->pace_ticks -= OS_TICKS_PACE;
    require(hakmem_alloc(100 * KIB) != NULL);
}

static struct research *tables(void) {
    return atomic_load_relaxed(&thread_cache->research);
}

static uint64_t sum(const _Atomic(uint64_t) *values, size_t count) {
    uint64_t total = 0;
    for (size_t i = 0; i < count; i++) {
        total += atomic_load_relaxed(&((_Atomic(uint64_t) *)(uintptr_t)values)[i]);
    }
    return total;
}

static uint64_t total(const struct histogram *histogram) {
    return sum(histogram->buckets, HISTOGRAM_BUCKETS);
}

static void buckets_of_a_histogram_meet(void **state) {
    (void)state;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        assert_int_equal(histogram_bucket(histogram_lowest(i)), i);
        if (i > 0) {
            assert_int_equal(histogram_bucket(histogram_lowest(i) - 1), i - 1);
        }
    }
    assert_int_equal(histogram_bucket(UINT64_MAX), HISTOGRAM_BUCKETS - 1);
}

static void every_operation_is_counted_once(void **state) {
    (void)state;
    void *blocks[500];
    set_research("1");
    // The first call attaches the thread, which follows at once.
    for (size_t i = 0; i < ARRAY_COUNT(blocks); i++) {
        blocks[i] = hakmem_alloc(100);
    }
    void *large = hakmem_alloc(200 * KIB);
    void *huge = hakmem_alloc(5 * MIB);
    void *zeroed[] = {hakmem_alloc_zeroed(300 * KIB), hakmem_alloc_zeroed(6 * MIB)};
    void *aligned[] = {hakmem_alloc_aligned(4 * KIB, 400 * KIB), hakmem_alloc_aligned(4 * MIB, 1)};
    struct research *mine = tables();
    assert_non_null(mine);
    const uint64_t class = size_class_index(100);
    assert_int_equal(sum(mine->allocs, SIZE_CLASS_COUNT), 500);
    assert_int_equal(sum(&mine->allocs[class], 1), 500);
    assert_int_equal(sum(&mine->requested_bytes[class], 1), 500 * 100);
    assert_int_equal(sum(mine->alloc_levels, RESEARCH_LEVEL_COUNT), 506);
    assert_int_equal(sum(&mine->alloc_levels[RESEARCH_LARGE], 1), 3);
    assert_int_equal(sum(&mine->alloc_levels[RESEARCH_HUGE], 1), 3);
    assert_int_equal(sum(&mine->alloc_levels[RESEARCH_NEW_SLAB], 1), 1);
    assert_true(sum(&mine->alloc_levels[RESEARCH_NODE], 1) > 400);
    assert_true(sum(&mine->alloc_levels[RESEARCH_HEAP], 1) > 5);
    assert_int_equal(total(&mine->alloc_ticks), 506);
    assert_int_equal(sum(&mine->request_bytes.sum, 1), 500 * 100 + 900 * KIB + 11 * MIB + 1);
    assert_int_equal(sum(&mine->request_bytes.buckets[histogram_bucket(100)], 1), 500);
    for (size_t i = 0; i < ARRAY_COUNT(blocks); i++) {
        hakmem_dealloc(blocks[i]);
    }
    hakmem_dealloc(large);
    hakmem_dealloc(huge);
    for (size_t i = 0; i < 2; i++) {
        hakmem_dealloc(zeroed[i]);
        hakmem_dealloc(aligned[i]);
    }
    hakmem_dealloc(NULL);
    assert_int_equal(sum(&mine->frees[class], 1), 500);
    assert_int_equal(sum(mine->free_levels, RESEARCH_LEVEL_COUNT), 506);
    assert_int_equal(total(&mine->free_ticks), 506);
    struct stats stats;
    stats_collect(&stats);
    assert_int_equal(stats.counter[COUNTER_mallocs_seen], 506);
    assert_int_equal(stats.counter[COUNTER_frees_seen], 506);
}

static void lives_end_with_their_blocks(void **state) {
    (void)state;
    void *blocks[800];
    set_research("1");
    for (size_t i = 0; i < ARRAY_COUNT(blocks); i++) {
        blocks[i] = hakmem_alloc(50);
    }
    struct research_lives *all = atomic_load_acquire(&research_lives);
    const uint64_t followed = atomic_load_relaxed(&all->followed);
    assert_int_equal(followed + atomic_load_relaxed(&all->without_place),
                     ARRAY_COUNT(blocks) / RESEARCH_SAMPLE);
    assert_true(followed > 0);
    assert_int_equal(total(&tables()->lifetime_ticks), 0);
    for (size_t i = 0; i < ARRAY_COUNT(blocks); i++) {
        hakmem_dealloc(blocks[i]);
    }
    assert_int_equal(total(&tables()->lifetime_ticks), followed);
}

// What it notes of a pointer into a block that was freed, which malloc hands out again (SECURITY.md, "late"), lies beside no size of
// another block, nor among the bits of the slab.
static void a_pointer_into_a_block_has_no_size(void **state) {
    (void)state;
    static char *blocks[512];
    setenv("HAKMEM_REQUEST_SIZES", "1", 1);
    setenv("HAKMEM_WATCHED_OPERATIONS", "0", 1);
    set_research("1");
    // Of such blocks a slab's bitmaps end where the sizes begin.
    for (size_t i = 0; i < ARRAY_COUNT(blocks); i++) {
        blocks[i] = hakmem_alloc(128);
    }
    const struct run *slab = slab_find((uintptr_t)blocks[0]);
    assert_int_equal(slab->block_count, ARRAY_COUNT(blocks));
    hakmem_dealloc(blocks[0] + 8);
    assert_ptr_equal(hakmem_alloc(128), blocks[0] + 8);
    for (size_t i = 0; i < ARRAY_COUNT(blocks); i++) {
        assert_false(slab_is_free(slab, (unsigned)i));
        assert_int_equal(atomic_load_relaxed(&slab_requests(slab)[i]), 128);
    }
}

// ---- On and off

static void a_running_thread_follows_at_its_tick(void **state) {
    (void)state;
    void *before[40];
    for (size_t i = 0; i < ARRAY_COUNT(before); i++) {
        before[i] = hakmem_alloc(100);
    }
    assert_null(tables());
    assert_false(cache_is_diverted(thread_cache));
    set_research("1");
    assert_false(cache_is_diverted(thread_cache));
    tick();
    assert_true(cache_is_diverted(thread_cache) && thread_cache->researched);
    const uint64_t cached = cache_block_count(thread_cache, size_class_index(100));
    assert_true(cached > 0);
    void *next = hakmem_alloc(100);
    assert_int_equal(cache_block_count(thread_cache, size_class_index(100)), cached - 1);
    assert_int_equal(sum(&tables()->alloc_levels[RESEARCH_NODE], 1), 1);
    hakmem_dealloc(next);
    set_research("0");
    tick();
    assert_false(cache_is_diverted(thread_cache) || thread_cache->researched);
    assert_int_equal(cache_block_count(thread_cache, size_class_index(100)), cached);
    const uint64_t seen = total(&tables()->alloc_ticks);
    assert_ptr_equal(hakmem_alloc(100), next);
    assert_int_equal(total(&tables()->alloc_ticks), seen);
    assert_int_equal(check_all(), 0);
}

static void switching_often_loses_no_block(void **state) {
    (void)state;
    static unsigned char *blocks[1000];
    uint64_t random = test_seed() | 1;
    for (unsigned i = 0; i < 60000; i++) {
        unsigned char **block = &blocks[random_next(&random) % ARRAY_COUNT(blocks)];
        if (*block == NULL) {
            *block = hakmem_alloc(random_next(&random) % 2000 + 1);
            // A block that two hold would show the other's mark.
            assert_non_null(*block);
            **block = (unsigned char)((uintptr_t)block >> 3);
        } else {
            assert_int_equal(**block, (unsigned char)((uintptr_t)block >> 3));
            hakmem_dealloc(*block);
            *block = NULL;
        }
        if (i % 500 == 0) {
            set_research(i % 1000 == 0 ? "1" : "0");
            thread_cache->pace_ticks -= OS_TICKS_PACE;
        }
    }
    assert_int_equal(check_all(), 0);
    for (size_t i = 0; i < ARRAY_COUNT(blocks); i++) {
        hakmem_dealloc(blocks[i]);
    }
    maintenance_reclaim();
    struct stats stats;
    stats_collect(&stats);
    assert_int_equal(stats.gauge[GAUGE_live_blocks], 0);
}

static void hardened_stays_diverted(void **state) {
    (void)state;
    setenv("HAKMEM_MODE", "hardened", 1);
    set_research("1");
    tick();
    assert_true(thread_cache->researched && cache_is_diverted(thread_cache));
    set_research("0");
    tick();
    assert_true(!thread_cache->researched && cache_is_diverted(thread_cache));
}

static void without_memory_for_tables_nothing_changes(void **state) {
    (void)state;
    tick();
    // The run that the next one of its length gets has its descriptor.
    hakmem_dealloc(hakmem_alloc(100 * KIB));
    fake_os_fail(OS_MMAP, 1, true);
    // What is left of a chunk would serve the tables.
    while (metadata_alloc(16 * KIB) != NULL) {
    }
    // Not before: on a slow machine the next look at the clock comes by itself.
    set_research("1");
    thread_cache->pace_ticks -= OS_TICKS_PACE;
    assert_non_null(hakmem_alloc(100 * KIB));
    assert_false(thread_cache->researched);
    fake_os_mend();
    tick();
    assert_true(thread_cache->researched);
}

static void a_cache_that_never_had_tables_is_not_diverted_for_good(void **state) {
    (void)state;
    set_research("1");
    void *room = metadata_alloc(sizeof(struct thread_cache));
    assert_non_null(room);
    fake_os_fail(OS_MMAP, 1, true);
    while (metadata_alloc(16 * KIB) != NULL) {
    }
    metadata_free(room, sizeof(struct thread_cache));
    assert_non_null(lifecycle_attach());
    assert_true(!thread_cache->researched && cache_is_diverted(thread_cache));
    fake_os_mend();
    set_research("0");
    tick();
    assert_false(cache_is_diverted(thread_cache));
}

// ---- Threads

static void *shared[300];

static void *free_shared(void *context) {
    (void)context;
    for (size_t i = 0; i < ARRAY_COUNT(shared); i++) {
        hakmem_dealloc(shared[i]);
    }
    require(atomic_load_relaxed(&tables()->free_levels[RESEARCH_REMOTE]) == ARRAY_COUNT(shared));
    return tables();
}

static void flow_goes_from_thread_to_heap(void **state) {
    (void)state;
    pthread_t thread;
    void *theirs;
    set_research("1");
    for (size_t i = 0; i < ARRAY_COUNT(shared); i++) {
        shared[i] = hakmem_alloc(200);
    }
    assert_int_equal(pthread_create(&thread, NULL, free_shared, NULL), 0);
    pthread_join(thread, &theirs);
    const struct research *other = theirs;
    assert_int_equal(sum(&other->other_flows, 1), 0);
    uint64_t blocks = 0;
    for (size_t i = 0; i < RESEARCH_FLOWS; i++) {
        if (sum(&other->flows[i].heap_id, 1) == thread_cache->heap.id) {
            blocks += sum(&other->flows[i].blocks, 1);
        }
    }
    assert_int_equal(blocks, ARRAY_COUNT(shared));
}

// Nobody counts it; it is free all the same.
static void a_block_freed_after_its_thread_had_its_end(void **state) {
    (void)state;
    set_research("1");
    void *block = hakmem_alloc(100);
    void *large = hakmem_alloc(100 * KIB);
    lifecycle_detach();
    hakmem_dealloc(block);
    hakmem_dealloc(large);
    struct stats stats;
    stats_collect(&stats);
    assert_int_equal(stats.gauge[GAUGE_live_blocks], 0);
    assert_int_equal(check_all(), 0);
}

// Relaxed: tells the threads to end; pairs with nothing.
static _Atomic(bool) stop;

static void *keep_busy(void *context) {
    (void)context;
    void *blocks[100] = {NULL};
    for (size_t i = 0; !atomic_load_relaxed(&stop); i++) {
        hakmem_dealloc(blocks[i % 100]);
        blocks[i % 100] = hakmem_alloc(i * 31 % 3000 + 1);
    }
    for (size_t i = 0; i < 100; i++) {
        hakmem_dealloc(blocks[i]);
    }
    return NULL;
}

static void other_threads_may_look_meanwhile(void **state) {
    (void)state;
    pthread_t threads[3];
    struct stats stats;
    for (size_t i = 0; i < ARRAY_COUNT(threads); i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, keep_busy, NULL), 0);
    }
    for (unsigned round = 0; round < 30; round++) {
        set_research(round % 2 == 0 ? "1" : "0");
        for (unsigned look = 0; look < 20; look++) {
            stats_collect(&stats);
        }
    }
    atomic_store_relaxed(&stop, true);
    for (size_t i = 0; i < ARRAY_COUNT(threads); i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(check_all(), 0);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_of_a_histogram_meet),
        cmocka_unit_test(every_operation_is_counted_once),
        cmocka_unit_test(lives_end_with_their_blocks),
        cmocka_unit_test(a_pointer_into_a_block_has_no_size),
        cmocka_unit_test(a_running_thread_follows_at_its_tick),
        cmocka_unit_test(switching_often_loses_no_block),
        cmocka_unit_test(hardened_stays_diverted),
        cmocka_unit_test(without_memory_for_tables_nothing_changes),
        cmocka_unit_test(a_cache_that_never_had_tables_is_not_diverted_for_good),
        cmocka_unit_test(flow_goes_from_thread_to_heap),
        cmocka_unit_test(a_block_freed_after_its_thread_had_its_end),
        cmocka_unit_test(other_threads_may_look_meanwhile),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
