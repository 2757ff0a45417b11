// What takes long where there is much memory is done in parts: no call gives back more than some milliseconds' worth.
#include "isolate.h"

#include <string.h>

#include "api/alloc.h"
#include "base/bits.h"
#include "config/options.h"
#include "control/check.h"
#include "fake_os.h"
#include "heap/heap.h"
#include "heap/heap_check.h"
#include "heap/heap_purge.h"
#include "heap/slab.h"
#include "plain_runs.h"
#include "space/arena_pages.h"
#include "space/arena_purge.h"
#include "space/page_map.h"
#include "thread/lifecycle.h"
#include "thread/maintenance.h"

static struct heap heap;

// More slabs of blocks of a page than one call looks at.
enum { SLAB_COUNT = 2500, PER_SLAB_MOST = 64 };
static void *blocks[SLAB_COUNT * PER_SLAB_MOST];
static unsigned block_count;

static unsigned per_slab(void) {
    return size_classes[SIZE_CLASS_4096].block_count;
}

// Slabs that are full; blocks[i * per_slab()] is the first one's of slab i.
static void fill(void) {
    page_map_init();
    heap_init(&heap, 2);
    block_count = SLAB_COUNT * per_slab();
    for (unsigned i = 0; i < block_count;) {
        const unsigned got =
            heap_take(&heap, SIZE_CLASS_4096, per_slab() - i % per_slab(), blocks + i);
        assert_true(got > 0);
        for (unsigned j = 0; j < got; j++) {
            memset(blocks[i + j], 1, 1);
        }
        i += got;
    }
}

static void put(unsigned index) {
    heap_put(&heap, &blocks[index], 1);
    blocks[index] = NULL;
}

// One block of each slab came back.
static void open_each(void) {
    fill();
    options.excess_bytes = UINT64_C(1) << 30;
    for (unsigned i = 0; i < SLAB_COUNT; i++) {
        put(i * per_slab());
    }
}

// What a slab costs of which a page goes: a look, a call of the system, the page, and the search; of how many a call does.
enum {
    SLAB_COST = 4 * KIB + 16 * KIB + 4 * KIB + 8 * 16,
    SLABS_PER_CALL = (HEAP_BUDGET_SELDOM + SLAB_COST - 1) / SLAB_COST,
};

static uint64_t purge(void) {
    heap.budget_bytes = HEAP_BUDGET_SELDOM;
    const uint64_t bytes = heap_purge_slabs(&heap, false);
    heap.budget_bytes = HEAP_BUDGET_ALL;
    return bytes;
}

static void check(void) {
    assert_int_equal(heap_check(&heap), 0);
    assert_int_equal(arena_check(), 0);
}

static void test_a_round_takes_several_calls(void **state) {
    (void)state;
    open_each();
    assert_int_equal(purge(), 0);  // ages
    assert_false(heap_round_is_over(&heap));
    assert_int_equal(heap.round.looked_through_count, 2048);
    assert_int_equal(heap.looked_through_count, 0);
    assert_int_equal(purge(), 0);
    assert_true(heap_round_is_over(&heap));
    assert_int_equal(heap.looked_through_count, SLAB_COUNT);
    for (unsigned i = 0; i < SLAB_COUNT / SLABS_PER_CALL; i++) {
        assert_int_equal(purge(), SLABS_PER_CALL * 4096);
    }
    assert_int_equal(purge(), SLAB_COUNT % SLABS_PER_CALL * 4096);
    check();
}

// Who has no bound does all at once, whatever was begun before.
static void test_without_a_bound_it_takes_one(void **state) {
    (void)state;
    open_each();
    assert_int_equal(purge(), 0);
    assert_int_equal(heap_purge_slabs(&heap, true), SLAB_COUNT * 4096);
    assert_true(heap_round_is_over(&heap));
    check();
}

static struct run *next_of(const struct slab_walk *walk) {
    return CONTAINER_OF(walk->link, struct run, bin_link);
}

static void fill_slab(struct run *slab) {
    while (slab->free_count != 0) {
        void *block;
        assert_int_equal(heap_take(&heap, SIZE_CLASS_4096, 1, &block), 1);
    }
}

static void empty_slab(struct run *slab) {
    const uintptr_t start = slab->start;
    const uintptr_t end = start + slab->page_count * PAGE_BYTES;
    for (unsigned i = 0; i < block_count; i++) {
        if ((uintptr_t)blocks[i] >= start && (uintptr_t)blocks[i] < end) {
            put(i);
        }
    }
}

static void fill_next(const struct slab_walk *walk) {
    struct run *next = next_of(walk);
    fill_slab(next);
    assert_ptr_not_equal(next_of(walk), next);
    check();
}

// A slab that fills leaves its list, one that empties goes or moves to the end.
static void test_the_slab_that_is_next_in_a_round_may_leave(void **state) {
    (void)state;
    open_each();
    purge();
    fill_next(&heap.round.walk);
    for (options.retain_slabs = 0; options.retain_slabs < 2; options.retain_slabs++) {
        struct run *next = next_of(&heap.round.walk);
        empty_slab(next);
        assert_ptr_not_equal(next_of(&heap.round.walk), next);
        check();
    }
    purge();
    assert_true(heap_round_is_over(&heap));
    check();
}

// Slabs that come to the end of the list meanwhile do not keep a round from its end.
static void test_a_round_ends_while_slabs_come_and_go(void **state) {
    (void)state;
    open_each();
    purge();
    for (unsigned i = 0; i < 2048; i++) {
        void *block;
        assert_int_equal(heap_take(&heap, SIZE_CLASS_4096, 1, &block), 1);
    }
    for (unsigned i = 0; i < 2048; i++) {
        put(i * per_slab() + 1);
    }
    purge();
    assert_true(heap_round_is_over(&heap));
    check();
}

static uint64_t purge_now(bool early) {
    heap.budget_bytes = HEAP_BUDGET_SELDOM;
    const uint64_t before = fake_os_purged_bytes();
    if (early) {
        heap_purge_early(&heap, true);
    } else {
        heap_purge_slabs(&heap, true);
    }
    heap.budget_bytes = HEAP_BUDGET_ALL;
    return fake_os_purged_bytes() - before;
}

static void finish_round(bool early) {
    for (unsigned calls = 0; !heap_round_is_over(&heap); calls++) {
        assert_in_range(calls, 0, SLAB_COUNT / SLABS_PER_CALL);
        purge_now(early);
    }
}

// Blocks that come back to a slab that a visitor's round is past want another one.
static void test_what_comes_back_behind_a_round_is_told(void **state) {
    (void)state;
    open_each();
    options.huge_pages = huge_pages_never;
    for (unsigned early = 0; early < 2; early++) {
        purge_now(early);
        assert_true(heap_round_goes_on(&heap, early));
        assert_false(heap.put_since_purge || heap.put_since_early);
        put(1 + early);  // of the first slab
        finish_round(early);
        assert_int_equal(heap.loose_bytes, 4096);
        assert_true(heap.put_since_purge && heap.put_since_early);
        purge_now(early);
        finish_round(early);
        assert_int_equal(heap.loose_bytes, 0);
        assert_false(heap.put_since_purge || heap.put_since_early);
        for (unsigned i = 1; i < SLAB_COUNT && early == 0; i++) {
            put(i * per_slab() + 1);
        }
        put(3 + early);
    }
    check();
}

// The heap's thread, which may use the blocks again at any time, begins a round of its own, and says that a visitor's was not over. A
// visitor does not wait for the age of what it finds.
static void test_each_begins_a_round_of_its_own(void **state) {
    (void)state;
    open_each();
    assert_int_equal(purge(), 0);
    assert_int_equal(purge_now(false), SLABS_PER_CALL * 4096);
    // What has aged, behind the visitor's, which were looked at.
    const uint64_t left_bytes = HEAP_BUDGET_SELDOM - SLABS_PER_CALL * 4 * KIB;
    assert_int_equal(purge(), (left_bytes + SLAB_COST - 1) / SLAB_COST * 4096);
    assert_false(heap.round.now);
    assert_true(heap.put_since_purge && heap.put_since_early);
    purge_now(false);
    assert_true(heap.round.now);
    finish_round(false);
    assert_int_equal(heap.loose_bytes, 0);
    check();
}

// Slabs that became sparse with nobody to purge them: who frees next does as much as one call does.
static void test_excess_goes_in_several_calls(void **state) {
    (void)state;
    fill();
    options.excess_bytes = 8 * MIB;
    heap.budget_bytes = 0;
    for (unsigned i = 0; i < block_count; i++) {
        if (i % per_slab() > 2) {
            put(i);
        }
    }
    heap.budget_bytes = HEAP_BUDGET_ALL;
    const uint64_t loose_bytes = heap.loose_bytes;
    assert_true(loose_bytes > 64 * MIB);
    put(0);
    const uint64_t slab_bytes = (uint64_t)per_slab() * 4096;
    assert_in_range(fake_os_purged_bytes(), MIB / 8, MIB / 4 + slab_bytes);
    fill_next(&heap.excess_walk);
    // Who frees much gives back much.
    void *much[60];
    for (unsigned i = 0; i < ARRAY_COUNT(much); i++) {
        much[i] = blocks[block_count - per_slab() * (1 + i / 2) + 1 + i % 2];
    }
    const uint64_t purged_bytes = fake_os_purged_bytes();
    heap_put(&heap, much, ARRAY_COUNT(much));
    assert_in_range(fake_os_purged_bytes() - purged_bytes, 2 * MIB, 4 * MIB);
    unsigned calls = 1;
    while (heap.excess_walk.link != NULL) {
        const uint64_t before = fake_os_purged_bytes();
        put(per_slab() * calls++);
        assert_in_range(fake_os_purged_bytes() - before, 0, MIB / 4 + 2 * slab_bytes);
        assert_in_range(calls, 0, 8 * loose_bytes / MIB);
    }
    assert_true(heap.loose_bytes <= 4 * MIB + slab_bytes);
    check();
}

// Where nothing can go the slabs are looked at once, and again when there is an eighth more.
static void test_excess_that_stays_is_looked_for_once(void **state) {
    (void)state;
    open_each();
    for (unsigned i = 0; i < SLAB_COUNT; i++) {
        for (unsigned j = 1; j < 4; j++) {
            put(i * per_slab() + j);
        }
    }
    options.excess_bytes = MIB;
    unsigned calls = 0;
    while (heap.excess.accepted_bytes == 0) {
        put(4 + per_slab() * calls++);
        assert_in_range(calls, 1, 1 + SLAB_COUNT / 64);
    }
    assert_null(heap.excess_walk.link);
    put(4 + per_slab() * calls);
    assert_null(heap.excess_walk.link);
    assert_int_equal(fake_os_purged_bytes(), 0);
    check();
}

static void test_runs_go_in_several_calls(void **state) {
    (void)state;
    page_map_init();
    options.purge_delay_ms = 500;
    struct run *runs[6];
    for (unsigned i = 0; i < ARRAY_COUNT(runs); i++) {
        runs[i] = take_plain(SUPERSLAB_PAGES);
    }
    for (unsigned i = 0; i < ARRAY_COUNT(runs); i++) {
        arena_give(runs[i]);
    }
    assert_int_equal(arena_purge(10000, 8 * MIB), 0);
    assert_int_equal(arena_purge_due(), 10500);
    assert_int_equal(arena_purge(10500, 8 * MIB), 8 * MIB);
    assert_int_equal(arena_purge_due(), 10500);  // at once
    // What is freed meanwhile is no part of it.
    arena_give(take_plain(1));
    assert_int_equal(arena_purge(10508, 8 * MIB), 8 * MIB);
    assert_int_equal(arena_purge_due(), 10508);
    const uint64_t left_bytes = dirty_bytes();
    assert_int_equal(arena_purge(10516, 8 * MIB), left_bytes - PAGE_BYTES);
    assert_int_equal(arena_state.delay.full_ms,
                     10516);  // the next one is as early as after one that took no time
    assert_int_equal(arena_purge_due(), 11016);
    assert_int_equal(arena_purge(11016, 8 * MIB), 0);
    assert_int_equal(arena_purge(11516, 8 * MIB), PAGE_BYTES);
    assert_int_equal(arena_purge_due(), UINT64_MAX);
    assert_int_equal(arena_check(), 0);
}

// The system refuses one superslab, and a call does not come to all others: these are no part of what must stay.
static void test_what_a_call_does_not_come_to_is_not_accepted(void **state) {
    (void)state;
    page_map_init();
    options.excess_bytes = UINT64_C(1) << 30;
    struct run *runs[8];
    for (unsigned i = 0; i < ARRAY_COUNT(runs); i++) {
        runs[i] = take_plain(SUPERSLAB_PAGES / 2);
        take_plain(SUPERSLAB_PAGES / 2);
    }
    for (unsigned i = 0; i + 1 < ARRAY_COUNT(runs); i++) {
        arena_give(runs[i]);
    }
    options.excess_bytes = 4 * MIB;
    fake_os_fail(OS_MADVISE, 1, false);
    arena_give(runs[ARRAY_COUNT(runs) - 1]);
    assert_int_equal(dirty_bytes(), 12 * MIB);  // twice what was freed went
    assert_int_equal(fake_os_refused(), 1);
    assert_int_equal(arena_state.excess.accepted_bytes, 0);
    assert_int_equal(arena_check(), 0);
}

// Sparse slabs of the thread's own, whose blocks' pages age from now on.
static void start_with_sparse_slabs(void) {
    assert_non_null(lifecycle_attach());
    options.watched_operations = 0;
    options.learn = 0;
    options.excess_bytes = UINT64_C(1) << 30;
    options.slab_purge_delay_ms = 1000;
    block_count = SLAB_COUNT * per_slab();
    for (unsigned i = 0; i < block_count; i++) {
        blocks[i] = hakmem_alloc(4096);
        memset(blocks[i], 1, 1);
    }
    for (unsigned i = 0; i < block_count; i += per_slab()) {
        hakmem_dealloc(blocks[i]);
    }
    cache_empty(thread_cache);
}

// A tick so many paces after the last one. Returns the bytes that it gave back.
static uint64_t purged_by_tick_after(uint64_t paces) {
    const uint64_t before = fake_os_purged_bytes();
    thread_cache->pace_ticks = os_ticks() - paces * OS_TICKS_PACE;
    assert_true(maintenance_tick(thread_cache));
    return fake_os_purged_bytes() - before;
}

// A thread's own slabs: each tick goes on, and the delay counts from the end.
static void test_ticks_go_on_with_a_round(void **state) {
    (void)state;
    start_with_sparse_slabs();
    purged_by_tick_after(100);
    uint64_t purged_bytes = 0;
    unsigned ticks = 0;
    unsigned first = 0;
    for (unsigned i = 0; i < 40; i++) {
        fake_os_pass_ms(600);
        const uint64_t bytes = purged_by_tick_after(100);
        purged_bytes += bytes;
        assert_in_range(bytes, 0, HEAP_BUDGET_SELDOM);
        first = ticks == 0 ? i : first;
        ticks += bytes != 0;
    }
    assert_int_equal(ticks, 8);
    // After 1.2 and 1.8 s they age, after 3 s, a second after that at least, they go.
    assert_int_equal(first, 4);
    assert_in_range(purged_bytes, (SLAB_COUNT - 20) * 4096, SLAB_COUNT * 4096);
    assert_int_equal(check_all(), 0);
}

// A thread that ticks at every pace does little at a time, but sooner again while something is left; one that comes seldom does more.
static void test_a_part_follows_the_time_since_the_last(void **state) {
    (void)state;
    start_with_sparse_slabs();
    uint64_t bytes = 0;
    for (unsigned i = 0; bytes == 0; i++) {
        fake_os_pass_ms(600);
        bytes = purged_by_tick_after(1);
        assert_in_range(i, 0, 60);
    }
    assert_in_range(bytes, HEAP_BUDGET_CALL / 6, HEAP_BUDGET_CALL / 2);  // of one pace, or of two
    assert_in_range(os_ticks() - thread_cache->pace_ticks, OS_TICKS_PACE / 8 * 7, UINT64_MAX);
    bytes = purged_by_tick_after(4);
    assert_in_range(bytes, HEAP_BUDGET_CALL / 2 + 1, HEAP_BUDGET_SELDOM / 6);
    while (bytes != 0) {
        bytes = purged_by_tick_after(100);
        assert_in_range(bytes, 0, HEAP_BUDGET_SELDOM);
    }
    const uint64_t since_ticks = os_ticks();
    purged_by_tick_after(100);
    assert_true(thread_cache->pace_ticks >= since_ticks);  // nothing is left
    assert_int_equal(check_all(), 0);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_round_takes_several_calls),
        cmocka_unit_test(test_without_a_bound_it_takes_one),
        cmocka_unit_test(test_the_slab_that_is_next_in_a_round_may_leave),
        cmocka_unit_test(test_a_round_ends_while_slabs_come_and_go),
        cmocka_unit_test(test_what_comes_back_behind_a_round_is_told),
        cmocka_unit_test(test_each_begins_a_round_of_its_own),
        cmocka_unit_test(test_excess_goes_in_several_calls),
        cmocka_unit_test(test_excess_that_stays_is_looked_for_once),
        cmocka_unit_test(test_runs_go_in_several_calls),
        cmocka_unit_test(test_what_a_call_does_not_come_to_is_not_accepted),
        cmocka_unit_test(test_ticks_go_on_with_a_round),
        cmocka_unit_test(test_a_part_follows_the_time_since_the_last),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
