// Threads of a short life that follow one another: who leaves its cached blocks to the next one, who finds them, how much
// waits, and until when.
#include "heap/guarded.h"
#include "heap/slab.h"
#include "successors.h"

// ---- Who leaves blocks, and who finds them

static void test_the_next_thread_has_the_blocks(void **state) {
    (void)state;
    start();
    struct thread_cache *cache = leave_blocks();
    check();
    const uint64_t held = cached(cache);
    assert_in_range(held, 8, ROOM);
    assert_int_equal(used_blocks(cache), held);
    const uint64_t refills = counted(COUNTER_refills), flushes = counted(COUNTER_flushes);
    begin_thread();
    assert_ptr_equal(thread_cache, cache);
    assert_int_equal(atomic_load_relaxed(&cache->state), CACHE_IN_USE);
    for (unsigned i = 0; i < held; i++) {
        assert_non_null(hakmem_alloc(BYTES));
    }
    assert_int_equal(cached(cache), 0);
    assert_int_equal(counted(COUNTER_refills), refills);
    assert_int_equal(counted(COUNTER_flushes), flushes);
    end_thread();
    check();
}

// The call that brings the cache has found the thread without one: what is in it is no less for that.
static void test_the_first_call_finds_the_blocks(void **state) {
    (void)state;
    start();
    struct thread_cache *cache = leave_blocks();
    const uint64_t held = cached(cache);
    thread_cache = (struct thread_cache *)(uintptr_t)&cache_of_new_thread;
    void *block = hakmem_alloc(BYTES);
    assert_ptr_equal(thread_cache, cache);
    assert_int_equal(cached(cache), held - 1);
    assert_int_equal(used_blocks(cache), held);
    be_short();
    end_thread();
    // And a free; also into a node that is full, or behind which full ones wait.
    for (unsigned count = 1; count < 300; count++) {
        cache = leave_blocks();
        begin_thread();
        use(count, BYTES);
        be_short();
        end_thread();
        const uint64_t used = used_blocks(cache);
        const bool was_kept = is_kept(cache);
        thread_cache = (struct thread_cache *)(uintptr_t)&cache_of_new_thread;
        hakmem_dealloc(block);
        block = hakmem_alloc(BYTES);
        assert_ptr_equal(thread_cache, cache);
        check();
        assert_true(used_blocks(cache) >= cached(cache) + 1);
        assert_true(used_blocks(cache) <= used || !was_kept);
        end_thread();
        maintenance_reclaim();
        assert_int_equal(used_blocks(cache), 1);
        thread_cache = (struct thread_cache *)(uintptr_t)&cache_of_new_thread;
        hakmem_dealloc(block);
        block = hakmem_alloc(BYTES);
        end_thread();
    }
    hakmem_dealloc(block);
    maintenance_reclaim();
    assert_int_equal(gauge(GAUGE_live_blocks), 0);
}

// An allocation that kept blocks serve stands for itself alone where allocations are sampled, not for those of a refill.
static void test_kept_blocks_are_no_refill(void **state) {
    (void)state;
    options.guard_sample = 1000000;
    start();
    assert_true(guarded_start());
    struct thread_cache *cache = leave_blocks();
    assert_true(cache->sampler.left > 1000);
    cache->sampler.left = 1000;
    thread_cache = (struct thread_cache *)(uintptr_t)&cache_of_new_thread;
    assert_non_null(hakmem_alloc(BYTES));
    assert_ptr_equal(thread_cache, cache);
    assert_int_equal(cache->sampler.left, 999);
    end_thread();
}

static void test_without_the_word_of_the_learner_nothing_stays(void **state) {
    (void)state;
    start();
    says_keep = false;
    for (unsigned i = 0; i < 100; i++) {
        struct thread_cache *cache = live_shortly();
        assert_false(is_kept(cache));
        assert_int_equal(used_blocks(cache), 0);
    }
    atomic_store_relaxed(&knobs_hooks.succession, NULL);
    says_keep = true;
    assert_false(is_kept(live_shortly()));
    check();
}

static void test_a_long_life_leaves_nothing(void **state) {
    (void)state;
    start();
    leave_blocks();
    begin_thread();
    struct thread_cache *cache = thread_cache;
    use(BLOCKS, BYTES);
    be_short();
    cache->passed_ticks -= OS_TICKS_PACE;
    end_thread();
    assert_false(is_kept(cache));
    assert_int_equal(used_blocks(cache), 0);
    check();
}

// A thread that follows nobody is no reason to expect another one.
static void test_who_came_late_leaves_nothing(void **state) {
    (void)state;
    start();
    struct thread_cache *cache = leave_blocks();
    cache->passed_ticks -= OS_TICKS_PACE;
    told_soon = told_late = 0;
    begin_thread();
    assert_ptr_equal(thread_cache, cache);
    assert_false(cache->came_soon);
    assert_int_equal(told_soon, 0);
    assert_int_equal(told_late, 1);
    use(BLOCKS, BYTES);
    cache->passed_ticks = os_ticks();
    end_thread();
    assert_false(is_kept(cache));
    assert_int_equal(used_blocks(cache), 0);
    check();
}

static void test_who_comes_soon_is_told(void **state) {
    (void)state;
    start();
    for (unsigned i = 0; i < 1000 && told_soon == 0; i++) {
        live_shortly();
    }
    assert_int_equal(told_soon, 1);
}

static void test_what_is_diverted_leaves_nothing(void **state) {
    (void)state;
    start();
    leave_blocks();
    options.research = 1;
    begin_thread();
    struct thread_cache *cache = thread_cache;
    assert_true(cache_is_diverted(cache));
    // However slow the machine: ticks meanwhile leave it so.
    cache->pace_ticks = 0;
    use(BLOCKS, BYTES);
    assert_true(cache->pace_ticks != 0);
    be_short();
    end_thread();
    assert_false(is_kept(cache));
    assert_int_equal(used_blocks(cache), 0);
    check();
}

static void test_without_a_magazine_nothing_is_kept(void **state) {
    (void)state;
    start();
    leave_blocks();
    mine->heap.put_since_purge = false;
    begin_thread();
    use(1, BYTES);
    thread_cache = mine;  // still there: the next one has a new cache
    begin_thread();
    struct thread_cache *cache = thread_cache;
    hakmem_dealloc(hakmem_alloc(MIB));
    be_short();
    end_thread();
    assert_int_equal(cache->capacity_bytes, 0);
    assert_false(is_kept(cache));
    check();
}

// What others freed of its blocks is taken in at the end, as without kept blocks.
static void test_remote_frees_are_collected_at_the_end(void **state) {
    (void)state;
    start();
    struct thread_cache *cache = NULL;
    for (unsigned i = 0; i < 1000 && (cache == NULL || !is_kept(cache)); i++) {
        begin_thread();
        cache = thread_cache;
        use(BLOCKS, BYTES);
        void *block = hakmem_alloc(BYTES);
        struct run *slab = arena_find((uintptr_t)block);
        heap_publish_block(slab, block);
        assert_true(heap_has_remote(&cache->heap));
        be_short();
        end_thread();
        assert_false(heap_has_remote(&cache->heap));
    }
    assert_true(is_kept(cache));
    assert_int_equal(used_blocks(cache), cached(cache));
    check();
}

// ---- Bounds

enum { MANY = 40 };

// Threads that are there at once, and end one after another.
static unsigned leave_many(struct thread_cache **caches) {
    for (unsigned i = 0; i < MANY; i++) {
        begin_thread();
        caches[i] = thread_cache;
        use(BLOCKS, BYTES);
    }
    unsigned kept = 0;
    for (unsigned i = 0; i < MANY; i++) {
        thread_cache = caches[i];
        be_short();
        end_thread();
        kept += is_kept(caches[i]);
        check();
    }
    return kept;
}

static uint64_t kept_bytes(struct thread_cache *const *caches) {
    uint64_t bytes = 0;
    for (unsigned i = 0; i < MANY; i++) {
        bytes += is_kept(caches[i]) ? caches[i]->capacity_bytes : 0;
    }
    return bytes;
}

static void test_all_together_keep_what_one_thread_may(void **state) {
    (void)state;
    start();
    leave_blocks();
    const uint64_t each = mine->capacity_bytes + 9 * KIB;
    options.cache_heap_bytes = 10 * each;
    struct thread_cache *caches[MANY];
    assert_in_range(leave_many(caches), 8, 12);
    assert_in_range(kept_bytes(caches), 1, option_live(cache_heap_bytes));
    // What is not kept is where it belongs.
    for (unsigned i = 0; i < MANY; i++) {
        assert_int_equal(cached(caches[i]) != 0, is_kept(caches[i]));
    }
    assert_int_equal(gauge(GAUGE_live_blocks), 0);
    check();
}

static void test_kept_bytes_count_in_the_total(void **state) {
    (void)state;
    start();
    // Counted once, however often they pass on.
    for (unsigned i = 0; i < 20; i++) {
        options.cache_total_bytes = 32 * MIB;
        const struct thread_cache *cache = leave_blocks();
        options.cache_total_bytes = mine->capacity_bytes + cache->capacity_bytes;
        assert_false(capacity_is_overdrawn());
        options.cache_total_bytes--;
        assert_true(capacity_is_overdrawn());
    }
    options.cache_total_bytes = mine->capacity_bytes + 1;
    assert_true(capacity_is_overdrawn());
    lifecycle_empty_kept();
    assert_false(capacity_is_overdrawn());
    // Where the total is used up nobody keeps anything.
    options.cache_total_bytes = 32 * MIB;
    begin_thread();
    struct thread_cache *cache = thread_cache;
    use(BLOCKS, BYTES);
    options.cache_total_bytes = mine->capacity_bytes + 1;
    assert_true(capacity_is_overdrawn());
    be_short();
    end_thread();
    assert_false(is_kept(cache));
    check();
}

// Its blocks may be more than the next one's share has room for.
static void test_a_thread_that_earned_keeps_nothing(void **state) {
    (void)state;
    start();
    struct thread_cache *cache = leave_blocks();
    assert_true(is_kept(cache));
    begin_thread();
    assert_ptr_equal(thread_cache, cache);
    cache->claim.earned_bytes = CAPACITY_EARNED_STEP;
    use(BLOCKS, BYTES);
    be_short();
    end_thread();
    assert_false(is_kept(cache));
    assert_int_equal(used_blocks(cache), 0);
}

// ---- What nobody took

static void test_a_tick_empties_what_nobody_took(void **state) {
    (void)state;
    start();
    options.decay_interval_ms = 100;
    tick_after(1);
    struct thread_cache *cache = leave_blocks();
    const uint64_t held = cached(cache);
    tick_after(99);
    assert_true(is_kept(cache));
    assert_int_equal(cached(cache), held);
    told_soon = told_late = 0;
    tick_after(1);
    assert_int_equal(atomic_load_relaxed(&cache->state), CACHE_UNUSED);
    assert_int_equal(cached(cache), 0);
    assert_int_equal(used_blocks(cache), 0);
    assert_int_equal(told_soon, 0);
    assert_int_equal(told_late, 1);
    // Told once: who takes the cache in the end tells nothing more, and leaves nothing.
    begin_thread();
    assert_ptr_equal(thread_cache, cache);
    assert_false(cache->came_soon);
    assert_int_equal(told_late, 1);
    end_thread();
    check();
}

// As in the child of a fork whose namespace has a time of its own.
static void test_a_tick_empties_what_was_left_before_the_clock_went_back(void **state) {
    (void)state;
    start();
    fake_os_pass_ms(1000000);
    tick_after(1);
    struct thread_cache *cache = leave_blocks();
    tick_after(-UINT64_C(900000));
    assert_int_equal(atomic_load_relaxed(&cache->state), CACHE_UNUSED);
    assert_int_equal(cached(cache), 0);
    check();
}

// Two threads at once, of which the second ends 60 ms after the first. A machine that lets one wait for too long gets
// another try.
static void leave_two(struct thread_cache *caches[2]) {
    for (unsigned i = 0; i < 1000; i++) {
        for (unsigned thread = 0; thread < 2; thread++) {
            begin_thread();
            caches[thread] = thread_cache;
            use(BLOCKS, BYTES);
        }
        for (unsigned thread = 0; thread < 2; thread++) {
            thread_cache = caches[thread];
            be_short();
            end_thread();
            fake_os_pass_ms(thread == 0 ? 60 : 0);
        }
        if (is_kept(caches[0]) && is_kept(caches[1])) {
            return;
        }
        lifecycle_empty_kept();
    }
    fail_msg("no two threads left blocks");
}

static void test_a_tick_leaves_what_is_fresh(void **state) {
    (void)state;
    start();
    options.decay_interval_ms = 100;
    leave_blocks();
    struct thread_cache *caches[2];
    leave_two(caches);
    tick_after(40);
    assert_false(is_kept(caches[0]));
    assert_true(is_kept(caches[1]));
    begin_thread();
    assert_ptr_equal(thread_cache, caches[1]);
    end_thread();
}

// One call does not pay for all that many threads have left.
static void test_a_tick_empties_a_few(void **state) {
    (void)state;
    start();
    options.decay_interval_ms = 100;
    tick_after(1);
    struct thread_cache *caches[MANY];
    unsigned left = leave_many(caches);
    for (unsigned i = 0; i < 1000 && left < 20; i++) {
        lifecycle_empty_kept();
        left = leave_many(caches);
    }
    assert_in_range(left, 20, MANY);
    fake_os_pass_ms(99);
    while (left != 0) {
        tick_after(1);
        const unsigned expected = left < 8 ? 0 : left - 8;
        left = 0;
        for (unsigned i = 0; i < MANY; i++) {
            left += is_kept(caches[i]);
        }
        assert_int_equal(left, expected);
    }
    assert_int_equal(registry_state.kept_bytes, 0);
}

// Nor for all that others freed of the heap's blocks: that is for visits to idle heaps, a part at a time.
static void test_a_tick_leaves_the_heap_to_visits(void **state) {
    (void)state;
    start();
    options.decay_interval_ms = 100;
    tick_after(1);
    struct thread_cache *cache = leave_blocks();
    assert_false(cache->heap.wants_visit);
    tick_after(100);
    assert_false(is_kept(cache));
    assert_true(cache->heap.wants_visit);
    assert_true(cache->heap.budget_bytes == HEAP_BUDGET_ALL);
    tick_after(100);
    assert_false(cache->heap.wants_visit);
}

static void test_reclaiming_empties_all(void **state) {
    (void)state;
    start();
    leave_blocks();
    struct thread_cache *caches[MANY];
    assert_in_range(leave_many(caches), 1, MANY);
    told_late = 0;
    maintenance_reclaim();
    assert_int_equal(kept_bytes(caches), 0);
    assert_int_equal(gauge(GAUGE_cached_bytes), 0);
    assert_int_equal(gauge(GAUGE_slab_bytes), 0);
    // Nobody was late: it was asked for.
    assert_int_equal(told_late, 0);
    check();
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_next_thread_has_the_blocks),
        cmocka_unit_test(test_the_first_call_finds_the_blocks),
        cmocka_unit_test(test_kept_blocks_are_no_refill),
        cmocka_unit_test(test_without_the_word_of_the_learner_nothing_stays),
        cmocka_unit_test(test_a_long_life_leaves_nothing),
        cmocka_unit_test(test_who_came_late_leaves_nothing),
        cmocka_unit_test(test_who_comes_soon_is_told),
        cmocka_unit_test(test_what_is_diverted_leaves_nothing),
        cmocka_unit_test(test_without_a_magazine_nothing_is_kept),
        cmocka_unit_test(test_remote_frees_are_collected_at_the_end),
        cmocka_unit_test(test_all_together_keep_what_one_thread_may),
        cmocka_unit_test(test_kept_bytes_count_in_the_total),
        cmocka_unit_test(test_a_thread_that_earned_keeps_nothing),
        cmocka_unit_test(test_a_tick_empties_what_nobody_took),
        cmocka_unit_test(test_a_tick_empties_what_was_left_before_the_clock_went_back),
        cmocka_unit_test(test_a_tick_leaves_what_is_fresh),
        cmocka_unit_test(test_a_tick_empties_a_few),
        cmocka_unit_test(test_a_tick_leaves_the_heap_to_visits),
        cmocka_unit_test(test_reclaiming_empties_all),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
