// What a heap gives back of the pages inside its slabs by age: at the option's delay and, with the learner, before.
#include "isolate.h"

#include <string.h>

#include "base/bits.h"
#include "config/options.h"
#include "fake_os.h"
#include "heap/bins.h"
#include "heap/heap.h"
#include "heap/heap_check.h"
#include "heap/heap_purge.h"
#include "plain_runs.h"
#include "space/page_map.h"
#include "space/space_hooks.h"

static struct heap heap;

static void start(void) {
    page_map_init();
    heap_init(&heap, 2);
}

static void check(void) {
    assert_int_equal(heap_check(&heap), 0);
    assert_int_equal(arena_check(), 0);
}

static unsigned take(struct heap *from, uint64_t class_index, unsigned want, void **blocks) {
    const unsigned got = heap_take(from, class_index, want, blocks);
    assert_true(got >= 1);
    return got;
}

static void *take_one(struct heap *from, uint64_t class_index) {
    void *block;
    assert_int_equal(take(from, class_index, 1, &block), 1);
    return block;
}

static uint64_t counted(const struct heap *from, enum counter counter) {
    return atomic_load_relaxed(&((struct heap *)(uintptr_t)from)->counters.value[counter]);
}

static void test_slabs_age_before_they_are_purged(void **state) {
    (void)state;
    start();
    options.purge_slab_block_min = 1024;
    const unsigned count = size_classes[SIZE_CLASS_4096].block_count - 4u;
    const unsigned half = count / 2;
    void *blocks[63];
    assert_int_equal(take(&heap, SIZE_CLASS_4096, count, blocks), count);
    void *small[63];
    take(&heap, SIZE_CLASS_512, 60, small);
    for (unsigned i = 0; i < count; i++) {
        memset(blocks[i], 1, 4096);
    }
    assert_int_equal(heap_purge_slabs(&heap, false), 0);
    heap_put(&heap, blocks, half);
    heap_put(&heap, small, 50);
    assert_int_equal(heap_purge_slabs(&heap, false), 0);  // aged
    assert_int_equal(heap_purge_slabs(&heap, false), half * 4096);
    assert_int_equal(heap_purge_slabs(&heap, false), 0);  // once
    assert_int_equal(counted(&heap, COUNTER_slab_purged_bytes), half * 4096);
    // A slab in use is not aged.
    heap_put(&heap, blocks + half, 1);
    assert_int_equal(heap_purge_slabs(&heap, false), 0);
    take_one(&heap, SIZE_CLASS_4096);
    assert_int_equal(heap_purge_slabs(&heap, false), 0);
    assert_true(heap_purge_slabs(&heap, false) > 0);
    // `now` asks for no age, and the option for no small blocks.
    heap_put(&heap, blocks + half + 1, 1);
    assert_true(heap_purge_slabs(&heap, true) > 0);
    options.purge_slab_block_min = 16;
    assert_true(heap_purge_slabs(&heap, true) > 0);
    check();
}

// ---- Early purges

static uint64_t asked_ms;
static uint32_t answer_ms = 40;

static void note_delay(struct purge_delay *delay, uint64_t most_ms) {
    assert_ptr_equal(delay, &heap.purge_delay);
    asked_ms = most_ms;
    delay->ms = answer_ms;
}

// A slab half of which came back; `blocks` are those still out.
static unsigned half_a_slab(void **blocks) {
    start();
    options.slab_purge_delay_ms = 6400;
    atomic_store_relaxed(&space_hooks.delay, note_delay);
    const unsigned half = size_classes[SIZE_CLASS_4096].block_count / 2;
    void *all[63];
    assert_int_equal(take(&heap, SIZE_CLASS_4096, 2 * half, all), 2 * half);
    for (unsigned i = 0; i < 2 * half; i++) {
        memset(all[i], 1, 4096);
        if (i >= half) {
            blocks[i - half] = all[i];
        }
    }
    heap_put(&heap, all, half);
    return half;
}

// Slabs that are purged in part, then go to the arena and come back, cost what they cost: the arena does not know.
static void test_what_went_by_way_of_the_arena_counts_as_wanted(void **state) {
    (void)state;
    void *blocks[63];
    const unsigned half = half_a_slab(blocks);
    options.retain_slabs = 0;
    const uint64_t bytes = heap_purge_slabs(&heap, true);
    assert_int_equal(bytes, half * 4096);
    // As if for being too much.
    slab_find((uintptr_t)blocks[0])->purged = SLAB_PURGED_EXCESS;
    excess_dropped(&heap.excess, bytes, 0);
    heap_put(&heap, blocks, half);
    heap_release_empty(&heap, false);
    assert_int_equal(heap.bins[SIZE_CLASS_4096].slab_count, 0);
    assert_int_equal(heap.gone_kib, bytes / KIB);
    take_one(&heap, SIZE_CLASS_4096);
    assert_int_equal(heap.gone_kib, 0);
    assert_int_equal(heap.excess.dropped_bytes, 0);
    check();
}

// Nor is what went so long ago taken for what is purged now and stays.
static void test_what_went_long_ago_is_forgotten(void **state) {
    (void)state;
    void *blocks[63];
    void *others[63];
    const unsigned half = half_a_slab(blocks);
    options.retain_slabs = 0;
    assert_int_equal(take(&heap, SIZE_CLASS_8192, 8, others), 8);
    for (unsigned i = 0; i < 8; i++) {
        memset(others[i], 1, 8192);
    }
    const uint64_t bytes = heap_purge_slabs(&heap, true);
    assert_int_equal(bytes, half * 4096);
    slab_find((uintptr_t)blocks[0])->purged = SLAB_PURGED_EXCESS;
    excess_dropped(&heap.excess, bytes, 0);
    heap_put(&heap, blocks, half);
    assert_int_equal(heap.gone_kib, bytes / KIB);
    fake_os_pass_ms(options.purge_delay_ms + 1);
    heap_put(&heap, others, 4);
    heap_purge_sparse(&heap, slab_find((uintptr_t)others[7]));
    const uint64_t dropped_bytes = heap.excess.dropped_bytes;
    assert_int_equal(dropped_bytes, 4 * 8192);
    assert_int_equal(heap.gone_kib, 0);
    take_one(&heap, SIZE_CLASS_4096);
    assert_int_equal(heap.excess.dropped_bytes, dropped_bytes);
    check();
}

static void test_what_was_given_back_before_does_not_count_again(void **state) {
    (void)state;
    void *blocks[63];
    const unsigned half = half_a_slab(blocks);
    assert_int_equal(heap_purge_slabs(&heap, true), half * 4096);
    void *block = take_one(&heap, SIZE_CLASS_4096);
    memset(block, 1, 4096);
    heap_put(&heap, &block, 1);
    assert_int_equal(heap_purge_slabs(&heap, true), 4096);
    assert_int_equal(counted(&heap, COUNTER_slab_purged_bytes), (half + 1) * 4096);
    check();
}

// Memory was locked for a while, say: it goes when somebody asks for everything, and with the rounds once the system takes something again.
static void test_what_the_system_refuses_is_tried_again(void **state) {
    (void)state;
    void *blocks[63];
    const unsigned half = half_a_slab(blocks);
    fake_os_fail(OS_MADVISE, 1, true);
    assert_int_equal(heap_purge_slabs(&heap, true), 0);
    check();
    const uint64_t calls = fake_os_calls(OS_MADVISE);
    for (unsigned i = 0; i < 10; i++) {
        assert_int_equal(heap_purge_slabs(&heap, false), 0);
        heap.budget_bytes = HEAP_BUDGET_SELDOM;  // a visitor's
        assert_int_equal(heap_purge_slabs(&heap, true), 0);
        heap.budget_bytes = HEAP_BUDGET_ALL;
    }
    assert_int_equal(fake_os_calls(OS_MADVISE), calls);
    fake_os_mend();
    assert_int_equal(heap_purge_slabs(&heap, true), half * 4096);
    assert_int_equal(heap_purge_slabs(&heap, true), 0);
    // Another slab's memory goes: so may this one's.
    void *others[63];
    assert_int_equal(take(&heap, SIZE_CLASS_8192, 8, others), 8);
    heap_put(&heap, blocks, 1);
    fake_os_fail(OS_MADVISE, 1, true);
    assert_int_equal(heap_purge_slabs(&heap, true), 0);
    fake_os_mend();
    heap_put(&heap, others, 4);
    assert_int_equal(heap_purge_slabs(&heap, false), 0);  // aged
    assert_int_equal(heap_purge_slabs(&heap, false), 4 * 8192 + (half + 1) * 4096);
    assert_int_equal(heap_purge_slabs(&heap, false), 0);
    check();
}

// A slab that comes from another heap amid a round, of a class that the round has passed, brings it along.
static void test_what_the_system_refused_comes_with_a_slab(void **state) {
    (void)state;
    static struct heap to;
    void *blocks[63];
    half_a_slab(blocks);
    heap_init(&to, 3);
    fake_os_fail(OS_MADVISE, 1, true);
    assert_int_equal(heap_purge_slabs(&heap, true), 0);
    assert_true(heap.refused_wait != 0);
    take_one(&to, SIZE_CLASS_64);
    take_one(&to, SIZE_CLASS_16);
    to.budget_bytes = 1;
    heap_purge_slabs(&to, true);
    assert_false(heap_round_is_over(&to));
    assert_true(heap_move_slab(&heap, &to, SIZE_CLASS_4096));
    to.budget_bytes = HEAP_BUDGET_SELDOM;
    heap_purge_slabs(&to, true);
    assert_true(heap_round_is_over(&to));
    assert_true(to.refused_wait != 0);
    assert_int_equal(heap_check(&to), 0);
    // And goes with the first round that the system takes all of.
    fake_os_mend();
    to.budget_bytes = HEAP_BUDGET_ALL;
    assert_true(heap_purge_slabs(&to, true) > 0);
    assert_int_equal(to.refused_wait, 0);
    check();
}

// However long nobody looked after that.
static void test_what_the_system_refused_is_due_at_any_age(void **state) {
    (void)state;
    start();
    fake_os_pass_ms(10 * 1024);
    heap_note_refused(&heap);
    // By a clock that began just now, too.
    assert_true(heap_may_purge_refused(&heap, 0));
    const uint64_t now_ms = os_clock_ms_locked();
    heap_put_off_refused(&heap, now_ms);
    assert_false(heap_may_purge_refused(&heap, now_ms));
    for (uint64_t hours = 1; hours < 100; hours++) {
        assert_true(heap_may_purge_refused(&heap, now_ms + hours * 3600 * 1000));
    }
}

static void test_early_purges_tell_what_is_wanted_again(void **state) {
    (void)state;
    void *blocks[63];
    const unsigned half = half_a_slab(blocks);
    assert_int_equal(heap_purge_delay_ms(&heap), 100);  // nothing is known yet
    assert_false(heap_purge_early(&heap, false));       // aged
    assert_int_equal(asked_ms, 6400);
    assert_int_equal(heap_purge_delay_ms(&heap), 40);
    assert_int_equal(heap.purge_delay.early_bytes, 0);
    heap_purge_early(&heap, false);
    assert_int_equal(heap.purge_delay.early_bytes, half * 4096);
    assert_int_equal(counted(&heap, COUNTER_slab_purged_bytes), half * 4096);
    void *again[63];
    assert_int_equal(take(&heap, SIZE_CLASS_4096, half, again), half);
    assert_int_equal(heap.purge_delay.refault_bytes, half * 4096);
    // What the option's delay purges is not the learner's.
    heap_put(&heap, again, half);
    heap_purge_slabs(&heap, true);
    assert_int_equal(take(&heap, SIZE_CLASS_4096, half, again), half);
    assert_int_equal(heap.purge_delay.refault_bytes, half * 4096);
    assert_int_equal(heap.purge_delay.early_bytes, half * 4096);
    check();
}

// The round is not held that would give back what the learner has just found to be wanted again.
static void test_a_round_that_is_too_early_is_not_held(void **state) {
    (void)state;
    void *blocks[63];
    const unsigned half = half_a_slab(blocks);
    heap_purge_early(&heap, false);  // aged
    answer_ms = 6400;
    assert_false(heap_purge_early(&heap, false));
    assert_true(heap_round_is_over(&heap));
    assert_int_equal(counted(&heap, COUNTER_slab_purged_bytes), 0);
    assert_int_equal(heap.purge_delay.early_bytes, 0);
    assert_int_equal(heap_purge_slabs(&heap, false), half * 4096);
    check();
}

// Another thread's visit to an idle heap is none of the heap's rounds.
static void test_early_purge_of_an_idle_heap_asks_nobody(void **state) {
    (void)state;
    void *blocks[63];
    const unsigned half = half_a_slab(blocks);
    assert_false(heap_purge_early(&heap, true));
    assert_int_equal(asked_ms, 0);
    assert_int_equal(heap.purge_delay.early_bytes, half * 4096);
}

// Else a delay that has come to the option's would never become shorter.
static void test_a_full_round_asks_too(void **state) {
    (void)state;
    void *blocks[63];
    half_a_slab(blocks);
    heap_purge_slabs(&heap, true);
    options.learn = 0;
    heap_purge_slabs(&heap, false);
    assert_int_equal(asked_ms, 0);
    options.learn = 1;
    heap_purge_slabs(&heap, false);
    assert_int_equal(asked_ms, 6400);
}

static void test_slabs_with_huge_pages_wait_for_the_options_delay(void **state) {
    (void)state;
    void *blocks[63];
    const unsigned half = half_a_slab(blocks);
    struct superslab *superslab = page_map_superslab((uintptr_t)blocks[0]);
    superslab->huge_pages = OS_HUGE_PAGES_ALWAYS;
    assert_true(heap_purge_early(&heap, true));
    assert_true(heap_purge_early(&heap, false));
    assert_int_equal(counted(&heap, COUNTER_slab_purged_bytes), 0);
    assert_int_equal(heap_purge_slabs(&heap, false), 0);  // ages as if nothing had been
    assert_int_equal(heap_purge_slabs(&heap, false), half * 4096);
    // Its huge pages are gone.
    heap_put(&heap, blocks, half / 2);
    assert_int_equal(atomic_load_relaxed(&superslab->hollow), 1);
    assert_false(heap_purge_early(&heap, true));
}

static void test_a_heap_of_many_slabs_is_looked_through_at_leisure(void **state) {
    (void)state;
    void *blocks[63];
    half_a_slab(blocks);
    heap.purge_delay.ms = 40;
    heap.looked_through_count = 2048;
    assert_int_equal(heap_purge_delay_ms(&heap), 3200);
    heap.looked_through_count = 10000;
    assert_int_equal(heap_purge_delay_ms(&heap), 6400);
    heap_purge_slabs(&heap, false);
    assert_int_equal(heap_purge_delay_ms(&heap), 40);
    // Without the learner the option's, whatever was learned.
    options.learn = 0;
    assert_int_equal(heap_purge_delay_ms(&heap), 6400);
    options.learn = 1;
    atomic_store_relaxed(&space_hooks.delay, NULL);
    assert_int_equal(heap_purge_delay_ms(&heap), 6400);
}

// What a former run left in a slab's memory goes back although no block of it ever came back: whoever visits the heap is told.
static void test_a_slab_on_used_memory_is_told_of(void **state) {
    (void)state;
    page_map_init();
    heap_init(&heap, 2);
    struct run *former = take_plain(1);
    memset((void *)former->start, 1, PAGE_BYTES);
    arena_give(former);
    void *block;
    assert_int_equal(heap_take(&heap, SIZE_CLASS_64, 1, &block), 1);
    assert_true(heap.put_since_purge && heap.put_since_early);
    assert_true(heap_purge_slabs(&heap, true) >= PAGE_BYTES - 2 * os_page_bytes());
    assert_false(heap.put_since_purge);
    assert_int_equal(heap_check(&heap), 0);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slabs_age_before_they_are_purged),
        cmocka_unit_test(test_a_slab_on_used_memory_is_told_of),
        cmocka_unit_test(test_what_went_by_way_of_the_arena_counts_as_wanted),
        cmocka_unit_test(test_what_went_long_ago_is_forgotten),
        cmocka_unit_test(test_what_was_given_back_before_does_not_count_again),
        cmocka_unit_test(test_early_purges_tell_what_is_wanted_again),
        cmocka_unit_test(test_what_the_system_refuses_is_tried_again),
        cmocka_unit_test(test_what_the_system_refused_comes_with_a_slab),
        cmocka_unit_test(test_what_the_system_refused_is_due_at_any_age),
        cmocka_unit_test(test_a_round_that_is_too_early_is_not_held),
        cmocka_unit_test(test_early_purge_of_an_idle_heap_asks_nobody),
        cmocka_unit_test(test_a_full_round_asks_too),
        cmocka_unit_test(test_slabs_with_huge_pages_wait_for_the_options_delay),
        cmocka_unit_test(test_a_heap_of_many_slabs_is_looked_through_at_leisure),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
