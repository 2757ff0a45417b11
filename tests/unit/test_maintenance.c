// What happens now and then: ticks by the clock, idle heaps, reclaiming everything.
#include "isolate.h"

#include <pthread.h>
#include <string.h>

#include "api/alloc.h"
#include "base/bits.h"
#include "config/options.h"
#include "control/check.h"
#include "control/learner.h"
#include "control/policy.h"
#include "control/stats.h"
#include "counted.h"
#include "fake_os.h"
#include "heap/heap_check.h"
#include "heap/heap_purge.h"
#include "heap/huge.h"
#include "heap/slab.h"
#include "idle.h"
#include "space/arena_pages.h"
#include "space/arena_purge.h"
#include "thread/lifecycle.h"
#include "thread/maintenance.h"
#include "thread/migration.h"

static uint64_t gauge(enum gauge gauge) {
    struct stats stats;
    stats_collect(&stats);
    return stats.gauge[gauge];
}

static void test_looks_at_the_clock_only_now_and_then(void **state) {
    (void)state;
    start();
    for (unsigned i = 0, quiet = 0; quiet < 100; i++) {
        assert_in_range(i, 0, 100000);
        const uint64_t before = fake_os_calls(OS_CLOCK);
        const uint64_t since_ticks = os_ticks();
        thread_cache->pace_ticks = since_ticks;
        const bool ticked = maintenance_tick(thread_cache);
        if (ticked && os_ticks() - since_ticks >= OS_TICKS_PACE) {
            continue;  // the machine let it wait
        }
        assert_false(ticked);
        assert_int_equal(fake_os_calls(OS_CLOCK), before);
        quiet++;
    }
    const uint64_t looks = fake_os_calls(OS_CLOCK);
    tick_after(0);
    assert_int_equal(fake_os_calls(OS_CLOCK), looks + 1);
}

static void test_tick_decays_the_cache(void **state) {
    (void)state;
    start();
    options.decay_interval_ms = 100;
    static void *blocks[50];
    for (unsigned i = 0; i < 50; i++) {
        blocks[i] = hakmem_alloc(64);
    }
    for (unsigned i = 0; i < 50; i++) {
        hakmem_dealloc(blocks[i]);
    }
    tick_after(100);  // active until now
    const uint64_t cached = cache_block_count(thread_cache, SIZE_CLASS_64);
    tick_after(99);
    assert_int_equal(cache_block_count(thread_cache, SIZE_CLASS_64), cached);
    tick_after(1);
    assert_int_equal(cache_block_count(thread_cache, SIZE_CLASS_64), cached - cached / 2);
}

static void test_tick_gives_up_spare_slabs(void **state) {
    (void)state;
    start();
    options.decay_interval_ms = 100;
    hakmem_dealloc(hakmem_alloc(64));
    thread_cache->heap.spares.most = 4;
    enum { COUNT = 5000 };
    static void *blocks[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        blocks[i] = hakmem_alloc(64);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        hakmem_dealloc(blocks[i]);
    }
    cache_empty(thread_cache);
    assert_true(thread_cache->heap.spares.count > 1);
    tick_after(100);  // some were in use until now
    tick_after(100);
    assert_in_range(thread_cache->heap.spares.most, 0, 1);
    assert_in_range(thread_cache->heap.spares.count, 0, RETAINED_CLASSES);
}

// What a thread that stopped freeing still has of others' goes home as it decays.
static void test_tick_sends_blocks_of_others_home(void **state) {
    (void)state;
    start();
    options.decay_interval_ms = 100;
    lock_acquire(&late_heap()->lock);
    void *blocks[8];
    assert_int_equal(heap_take(late_heap(), SIZE_CLASS_64, 8, blocks), 8);
    lock_release(&late_heap()->lock);
    for (unsigned i = 0; i < 8; i++) {
        hakmem_dealloc(blocks[i]);
    }
    tick_after(99);
    assert_false(heap_has_remote(late_heap()));
    tick_after(1);
    assert_true(heap_has_remote(late_heap()));
    lock_acquire(&late_heap()->lock);
    assert_int_equal(heap_collect(late_heap()), 4);
    lock_release(&late_heap()->lock);
}

// Nobody's own: what others free of its blocks waits for no thread of its.
static void test_tick_collects_what_was_freed_of_the_late_heap(void **state) {
    (void)state;
    start();
    enum { COUNT = 200 };
    void *blocks[COUNT];
    lock_acquire(&late_heap()->lock);
    for (unsigned i = 0; i < COUNT; i++) {
        assert_int_equal(heap_take(late_heap(), SIZE_CLASS_1024, 1, &blocks[i]), 1);
    }
    lock_release(&late_heap()->lock);
    tick_after(0);
    for (unsigned i = 0; i < COUNT; i++) {
        heap_publish_block(slab_find((uintptr_t)blocks[i]), blocks[i]);
    }
    assert_true(heap_has_remote(late_heap()));
    tick_after(option_live(decay_interval_ms));
    assert_false(heap_has_remote(late_heap()));
    struct heap_class_totals totals;
    heap_class_totals(late_heap(), SIZE_CLASS_1024, &totals);
    assert_int_equal(totals.slab_bytes, 0);
    assert_int_equal(check_all(), 0);
}

static void test_tick_purges_runs_that_are_due(void **state) {
    (void)state;
    start();
    options.purge_delay_ms = 500;
    hakmem_dealloc(hakmem_alloc(MIB));
    assert_int_equal(gauge(GAUGE_dirty_bytes), MIB);
    tick_after(0);
    tick_after(499);
    assert_int_equal(gauge(GAUGE_dirty_bytes), MIB);
    tick_after(1);
    assert_int_equal(gauge(GAUGE_dirty_bytes), 0);
    assert_int_equal(counted(COUNTER_purged_bytes), MIB);
}

static void test_tick_purges_kept_mappings(void **state) {
    (void)state;
    start();
    options.purge_delay_ms = 500;
    hakmem_dealloc(hakmem_alloc(5 * MIB));
    assert_int_equal(gauge(GAUGE_huge_cached_bytes), 5 * MIB);
    tick_after(499);
    assert_true(huge_has_kept());
    tick_after(1);
    assert_false(huge_has_kept());
}

static void *sparse[60];

// Slabs of which the last blocks stay. Returns the bytes of the others.
static size_t make_sparse(void) {
    options.cache_class_bytes = 0;
    const unsigned per_slab = size_classes[size_class_index(4096)].block_count;
    const unsigned kept = per_slab / 6;
    size_t freed_bytes = 0;
    for (unsigned i = 0; i < ARRAY_COUNT(sparse); i++) {
        sparse[i] = hakmem_alloc(4096);
        memset(sparse[i], 1, 4096);
    }
    for (unsigned i = 0; i < ARRAY_COUNT(sparse); i++) {
        if (i % per_slab < per_slab - kept) {
            hakmem_dealloc(sparse[i]);
            sparse[i] = NULL;
            freed_bytes += 4096;
        }
    }
    cache_empty(thread_cache);
    return freed_bytes;
}

static void check_sparse(void) {
    for (unsigned i = 0; i < ARRAY_COUNT(sparse); i++) {
        assert_true(sparse[i] == NULL || *(char *)sparse[i] == 1);
    }
}

// All that a program may do for hours is to resize what it has.
static void test_resizing_in_place_ticks(void **state) {
    (void)state;
    start();
    options.purge_delay_ms = 500;
    char *large = hakmem_alloc(256 * KIB);
    char *huge = hakmem_alloc(8 * MIB);
    void *spike = hakmem_alloc(5 * MIB);
    hakmem_dealloc(hakmem_alloc(MIB));
    hakmem_dealloc(spike);
    for (unsigned i = 0; i < 3; i++) {
        fake_os_pass_ms(500);
        thread_cache->pace_ticks = 0;
        assert_ptr_equal(hakmem_resize(large, (i % 2 == 0 ? 128 : 256) * KIB), large);
    }
    assert_in_range(gauge(GAUGE_dirty_bytes), 0, 128 * KIB);
    assert_false(huge_has_kept());
    const uint64_t ticks = counted(COUNTER_ticks);
    thread_cache->pace_ticks = 0;
    assert_ptr_equal(hakmem_resize(huge, 7 * MIB), huge);
    assert_int_equal(counted(COUNTER_ticks), ticks + 1);
    assert_int_equal(check_all(), 0);
}

static void test_tick_purges_sparse_slabs(void **state) {
    (void)state;
    start();
    options.slab_purge_delay_ms = 1000;
    const size_t freed_bytes = make_sparse();
    tick_after(1000);  // ages
    assert_int_equal(counted(COUNTER_slab_purged_bytes), 0);
    tick_after(1000);
    assert_in_range(counted(COUNTER_slab_purged_bytes), freed_bytes, SIZE_MAX);
    check_sparse();
}

static void test_the_learner_purges_sparse_slabs_sooner(void **state) {
    (void)state;
    learner_start();
    start();
    options.slab_purge_delay_ms = 6400;
    const size_t freed_bytes = make_sparse();
    tick_after(99);
    tick_after(1);  // ages
    tick_after(99);
    assert_int_equal(counted(COUNTER_slab_purged_bytes), 0);
    tick_after(1);
    assert_in_range(counted(COUNTER_slab_purged_bytes), freed_bytes, SIZE_MAX);
    check_sparse();
}

// What goes early and is wanted again makes the delay longer, round by round.
static void test_the_learner_pays_for_a_short_delay_once(void **state) {
    (void)state;
    learner_start();
    start();
    options.slab_purge_delay_ms = 6400;
    const struct heap *heap = &thread_cache->heap;
    for (unsigned wave = 0; wave < 7; wave++) {
        make_sparse();
        for (unsigned i = 0; i < 6; i++) {
            tick_after(heap_purge_delay_ms(heap) / 2);
        }
        for (unsigned i = 0; i < ARRAY_COUNT(sparse); i++) {
            hakmem_dealloc(sparse[i]);
        }
    }
    assert_int_equal(heap_purge_delay_ms(heap), 3200);
    // The log says so, among what else was decided.
    uint64_t ms = 100;
    for (uint64_t number = 1; number <= atomic_load_relaxed(&decision_log.decided); number++) {
        const struct decision *row = &decision_log.decisions[number % DECISION_COUNT];
        if (atomic_load_relaxed(&row->knob) == POLICY_KNOB_slab_purge_delay_ms) {
            assert_int_equal(atomic_load_relaxed(&row->heap), heap->id);
            assert_int_equal(atomic_load_relaxed(&row->from), ms);
            ms = atomic_load_relaxed(&row->to);
        }
    }
    assert_int_equal(ms, 3200);
    // From the moment that the learner is off as if nothing had been learned.
    options.learn = 0;
    assert_int_equal(heap_purge_delay_ms(heap), 6400);
}

// Large blocks that come and go: early purges are paid for until the delay is longer; where the process had much of a processor
// they cost too little to mind.
static uint64_t delay_of_runs_after_waves(uint64_t cpu_ns) {
    learner_start();
    start();
    options.purge_delay_ms = 1600;
    options.huge_pages = huge_pages_never;
    uint64_t now_ms = os_clock_ms();
    for (unsigned wave = 0; wave < 6; wave++) {
        uint64_t used;
        struct run *run = arena_take(16, PAGE_BYTES, false, &used);
        assert_non_null(run);
        arena_give(run);
        for (unsigned i = 0; i < 3; i++) {
            const uint64_t delay_ms = runs_delay_ms(&arena_state.delay);
            fake_os_pass_ms(delay_ms);
            fake_os_pass_cpu_ns(cpu_ns);
            arena_purge(now_ms += delay_ms, 8 * MIB);
        }
    }
    return runs_delay_ms(&arena_state.delay);
}

static void test_the_learner_pays_for_early_runs_once(void **state) {
    (void)state;
    assert_in_range(delay_of_runs_after_waves(1000), 200, 1600);
    uint64_t ms = 100;
    for (uint64_t number = 1; number <= atomic_load_relaxed(&decision_log.decided); number++) {
        const struct decision *row = &decision_log.decisions[number % DECISION_COUNT];
        if (atomic_load_relaxed(&row->knob) == POLICY_KNOB_purge_delay_ms) {
            assert_int_equal(atomic_load_relaxed(&row->heap), 0);
            assert_int_equal(atomic_load_relaxed(&row->from), ms);
            ms = atomic_load_relaxed(&row->to);
        }
    }
    assert_int_equal(ms, runs_delay_ms(&arena_state.delay));
    options.learn = 0;
    assert_int_equal(runs_delay_ms(&arena_state.delay), 1600);
}

static void test_early_runs_that_cost_little_go_on(void **state) {
    (void)state;
    assert_int_equal(delay_of_runs_after_waves(1000 * 1000 * 1000), 100);
}

static void test_without_the_learner_sparse_slabs_stay_as_the_option_says(void **state) {
    (void)state;
    learner_start();
    start();
    options.learn = 0;
    options.slab_purge_delay_ms = 6400;
    const size_t freed_bytes = make_sparse();
    for (unsigned i = 0; i < 31; i++) {
        tick_after(400);
        assert_int_equal(counted(COUNTER_slab_purged_bytes), 0);
    }
    tick_after(400);
    assert_in_range(counted(COUNTER_slab_purged_bytes), freed_bytes, SIZE_MAX);
}

// ---- Reclaiming ----

static void test_reclaim_gives_everything_back(void **state) {
    (void)state;
    start();
    struct idle idle;
    begin_idle(&idle);
    static void *blocks[3000];
    for (unsigned i = 0; i < ARRAY_COUNT(blocks); i++) {
        blocks[i] = hakmem_alloc(i * 7);
    }
    void *large = hakmem_alloc(MIB);
    void *huge = hakmem_alloc(10 * MIB);
    for (unsigned i = 0; i < ARRAY_COUNT(blocks); i++) {
        hakmem_dealloc(blocks[i]);
    }
    hakmem_dealloc(large);
    hakmem_dealloc(huge);
    for (unsigned i = 0; i < 10; i++) {
        hakmem_dealloc(idle.kept[i]);
    }
    assert_true(maintenance_reclaim() > 10 * MIB);
    struct stats stats;
    stats_collect(&stats);
    assert_int_equal(stats.gauge[GAUGE_live_bytes], 0);
    assert_int_equal(stats.gauge[GAUGE_cached_bytes], 0);
    assert_int_equal(stats.gauge[GAUGE_slab_bytes], 0);
    assert_int_equal(stats.gauge[GAUGE_dirty_bytes], 0);
    assert_int_equal(stats.gauge[GAUGE_huge_cached_bytes], 0);
    assert_int_equal(stats.gauge[GAUGE_mapped_bytes], SUPERSLAB_BYTES);
    assert_int_equal(maintenance_reclaim(), 0);
    end_idle(&idle);
}

// What the machine would not have even if it were all given back, as a length read from bad input, leaves all as it is.
static void test_a_hopeless_request_gives_nothing_back(void **state) {
    (void)state;
    start();
    void *small[100];
    for (unsigned i = 0; i < ARRAY_COUNT(small); i++) {
        small[i] = hakmem_alloc(200);
    }
    void *large = hakmem_alloc(MIB);
    void *huge = hakmem_alloc(10 * MIB);
    hakmem_dealloc(huge);
    hakmem_dealloc(large);
    for (unsigned i = 1; i < ARRAY_COUNT(small); i++) {
        hakmem_dealloc(small[i]);
    }
    struct stats before;
    stats_collect(&before);
    assert_true(before.gauge[GAUGE_dirty_bytes] >= MIB);
    assert_true(before.gauge[GAUGE_huge_cached_bytes] >= 10 * MIB);
    assert_true(before.gauge[GAUGE_cached_bytes] > 0);
    const uint64_t purged_bytes = fake_os_purged_bytes();
    assert_null(hakmem_alloc(100 * GIB));
    assert_null(hakmem_resize(small[0], 100 * GIB));
    struct stats after;
    stats_collect(&after);
    assert_int_equal(after.gauge[GAUGE_huge_cached_bytes], before.gauge[GAUGE_huge_cached_bytes]);
    assert_int_equal(after.gauge[GAUGE_dirty_bytes], before.gauge[GAUGE_dirty_bytes]);
    assert_int_equal(after.gauge[GAUGE_cached_bytes], before.gauge[GAUGE_cached_bytes]);
    assert_int_equal(fake_os_purged_bytes(), purged_bytes);
    hakmem_dealloc(small[0]);
}

// What is kept lies as no such block may, and is in its way.
static void test_a_request_that_giving_back_serves(void **state) {
    (void)state;
    start();
    hakmem_dealloc(hakmem_alloc(10 * MIB));
    assert_true(gauge(GAUGE_huge_cached_bytes) >= 10 * MIB);
    const size_t mapped_bytes = fake_os_bytes(FAKE_WRITABLE) + fake_os_bytes(FAKE_READABLE) +
                                fake_os_bytes(FAKE_INACCESSIBLE);
    fake_os_limit_bytes(mapped_bytes + 2 * MIB);
    void *block = hakmem_alloc_aligned(16 * MIB, 11 * MIB);
    assert_non_null(block);
    assert_int_equal(gauge(GAUGE_huge_cached_bytes), 0);
    hakmem_dealloc(block);
}

// What it has is not asked for anew, as a copy would.
static void test_a_block_that_giving_back_lets_grow(void **state) {
    (void)state;
    start();
    void *block = hakmem_alloc(40 * MIB);
    hakmem_dealloc(hakmem_alloc(10 * MIB));
    const size_t mapped_bytes = fake_os_bytes(FAKE_WRITABLE) + fake_os_bytes(FAKE_READABLE) +
                                fake_os_bytes(FAKE_INACCESSIBLE);
    fake_os_limit_bytes(mapped_bytes + 2 * MIB);
    fake_os_block_behind(block);
    void *grown = hakmem_resize(block, 51 * MIB);
    assert_non_null(grown);
    hakmem_dealloc(grown);
}

static void *reclaim(void *unused) {
    (void)unused;
    maintenance_reclaim();
    return NULL;
}

static void test_reclaim_does_not_wait_for_a_heap(void **state) {
    (void)state;
    start();
    struct idle idle;
    begin_idle(&idle);
    pthread_t other;
    lock_acquire(&idle.cache->heap.lock);
    assert_int_equal(pthread_create(&other, NULL, reclaim, NULL), 0);
    pthread_join(other, NULL);
    lock_release(&idle.cache->heap.lock);
    assert_true(slab_bytes(idle.cache) > 0);
    end_idle(&idle);
}

static void test_reclaim_ends_the_quarantine(void **state) {
    (void)state;
    lifecycle_start();
    options.quarantine_blocks = 64;
    options.zero_on_free = 1;
    assert_non_null(lifecycle_attach());
    for (unsigned i = 0; i < 50; i++) {
        hakmem_dealloc(hakmem_alloc(64));
    }
    // The program has freed them; their slab does not hold them yet.
    assert_int_equal(gauge(GAUGE_live_blocks), 0);
    struct heap_class_totals totals;
    heap_class_totals(&thread_cache->heap, SIZE_CLASS_64, &totals);
    assert_int_equal(totals.used_blocks, 50);
    maintenance_reclaim();
    assert_int_equal(gauge(GAUGE_live_blocks), 0);
    assert_int_equal(gauge(GAUGE_slab_bytes), 0);
    assert_int_equal(check_all(), 0);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_looks_at_the_clock_only_now_and_then),
        cmocka_unit_test(test_tick_decays_the_cache),
        cmocka_unit_test(test_the_learner_pays_for_early_runs_once),
        cmocka_unit_test(test_early_runs_that_cost_little_go_on),
        cmocka_unit_test(test_tick_gives_up_spare_slabs),
        cmocka_unit_test(test_tick_sends_blocks_of_others_home),
        cmocka_unit_test(test_tick_collects_what_was_freed_of_the_late_heap),
        cmocka_unit_test(test_tick_purges_runs_that_are_due),
        cmocka_unit_test(test_tick_purges_kept_mappings),
        cmocka_unit_test(test_resizing_in_place_ticks),
        cmocka_unit_test(test_tick_purges_sparse_slabs),
        cmocka_unit_test(test_the_learner_purges_sparse_slabs_sooner),
        cmocka_unit_test(test_the_learner_pays_for_a_short_delay_once),
        cmocka_unit_test(test_without_the_learner_sparse_slabs_stay_as_the_option_says),
        cmocka_unit_test(test_reclaim_gives_everything_back),
        cmocka_unit_test(test_a_hopeless_request_gives_nothing_back),
        cmocka_unit_test(test_a_request_that_giving_back_serves),
        cmocka_unit_test(test_a_block_that_giving_back_lets_grow),
        cmocka_unit_test(test_reclaim_does_not_wait_for_a_heap),
        cmocka_unit_test(test_reclaim_ends_the_quarantine),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
