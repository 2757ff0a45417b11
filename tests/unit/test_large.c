// Large blocks: runs of pages in superslabs.
#include "isolate.h"

#include <string.h>

#include "base/bits.h"
#include "config/counters.h"
#include "config/options.h"
#include "fake_os.h"
#include "heap/large.h"
#include "space/arena_purge.h"
#include "space/page_map.h"
#include "team.h"

static void start(void) {
    page_map_init();
}

static char *make(size_t bytes, size_t alignment, bool zero) {
    char *block = large_alloc(bytes, alignment, zero);
    assert_non_null(block);
    assert_int_equal((uintptr_t)block % alignment, 0);
    assert_int_equal((uintptr_t)block % PAGE_BYTES, 0);
    return block;
}

static struct run *run_of(const void *block) {
    struct run *run = large_find((uintptr_t)block);
    assert_non_null(run);
    return run;
}

static size_t usable(const void *block) {
    return atomic_load_relaxed(&run_of(block)->large_bytes);
}

static void check_entries(const char *block, size_t bytes, uint64_t entry) {
    for (size_t at = 0; at < bytes; at += PAGE_BYTES) {
        assert_int_equal(page_map_get((uintptr_t)block + at), entry);
    }
}

static void check_zero(const char *start, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 64) {
        assert_int_equal(start[at], 0);
    }
    assert_int_equal(start[bytes - 1], 0);
}

#define LARGE_ENTRY page_entry(0, PAGE_KIND_LARGE)

static void test_every_number_of_pages(void **state) {
    (void)state;
    start();
    for (size_t bytes = PAGE_BYTES; bytes <= LARGE_BYTES_MAX; bytes += PAGE_BYTES) {
        for (int more = -1; more <= 1; more++) {
            const size_t wanted = bytes + (size_t)(ptrdiff_t)more;
            if (wanted > LARGE_BYTES_MAX) {
                continue;
            }
            char *block = make(wanted, PAGE_BYTES, false);
            assert_int_equal(usable(block), align_up(wanted, os_page_bytes()));
            memset(block, 1, usable(block));
            check_entries(block, wanted, LARGE_ENTRY);
            assert_true(large_free(run_of(block), (uintptr_t)block));
            check_entries(block, wanted, PAGE_ENTRY_NONE);
        }
    }
    assert_int_equal(arena_check(), 0);
}

static void test_alignment(void **state) {
    (void)state;
    start();
    for (size_t alignment = 1; alignment <= LARGE_BYTES_MAX; alignment *= 2) {
        for (size_t bytes = 1; bytes <= LARGE_BYTES_MAX; bytes = bytes * 3 + 1000) {
            make(bytes, alignment, false);
        }
    }
    assert_int_equal(arena_check(), 0);
}

static void test_zero_when_asked(void **state) {
    (void)state;
    start();
    for (size_t bytes = 70000; bytes < LARGE_BYTES_MAX; bytes += 300000) {
        char *block = make(bytes, PAGE_BYTES, true);
        check_zero(block, bytes);
        memset(block, 1, usable(block));
        large_free(run_of(block), (uintptr_t)block);
        // The same place, dirty now.
        char *again = make(bytes, PAGE_BYTES, true);
        assert_ptr_equal(again, block);
        check_zero(again, bytes);
        memset(again, 1, usable(again));
        large_free(run_of(again), (uintptr_t)again);
        arena_purge(os_clock_ms(), bytes % 2 == 0 ? ARENA_PURGE_ALL : 8 * MIB);
    }
}

static void test_only_what_was_written_is_cleared(void **state) {
    (void)state;
    start();
    char *first = make(4 * PAGE_BYTES, PAGE_BYTES, false);
    char *between = make(PAGE_BYTES, PAGE_BYTES, false);
    char *third = make(PAGE_BYTES, PAGE_BYTES, false);
    memset(first + 2 * PAGE_BYTES, 1, PAGE_BYTES);
    memset(third, 1, PAGE_BYTES);
    large_free(run_of(between), (uintptr_t)between);
    arena_purge(os_clock_ms(), ARENA_PURGE_ALL);
    large_free(run_of(first), (uintptr_t)first);
    large_free(run_of(third), (uintptr_t)third);
    // Four used pages, one that was purged, one that was used, two that nobody has had.
    const size_t bytes = 8 * PAGE_BYTES - 5000;
    char *block = make(bytes, PAGE_BYTES, true);
    assert_ptr_equal(block, first);
    assert_int_equal(os_resident_bytes(block, 8 * PAGE_BYTES), 5 * PAGE_BYTES);
    check_zero(block, bytes);
    // The end of the last page is not the block's.
    memset(block, 1, usable(block));
    large_free(run_of(block), (uintptr_t)block);
    block = make(bytes, PAGE_BYTES, true);
    check_zero(block, bytes);
    assert_int_equal(block[bytes], 1);
}

static void test_found_at_its_start_only(void **state) {
    (void)state;
    start();
    char *block = make(300000, PAGE_BYTES, false);
    assert_non_null(large_find((uintptr_t)block));
    assert_null(large_find((uintptr_t)block + 16));
    assert_null(large_find((uintptr_t)block + PAGE_BYTES));
    assert_null(large_find((uintptr_t)block + 400000));
    large_free(run_of(block), (uintptr_t)block);
    assert_null(large_find((uintptr_t)block));
}

static void test_resize_in_place(void **state) {
    (void)state;
    start();
    char *block = make(70000, PAGE_BYTES, false);
    struct run *run = run_of(block);
    memset(block, 1, 70000);
    assert_true(large_resize(run, 1000000));
    assert_int_equal(usable(block), align_up(1000000, os_page_bytes()));
    check_entries(block, 1000000, LARGE_ENTRY);
    assert_int_equal(block[69999], 1);
    memset(block, 2, usable(block));
    char *behind = make(70000, PAGE_BYTES, false);
    assert_true(large_resize(run, 200000));
    check_entries(block, 200000, LARGE_ENTRY);
    assert_int_equal(page_map_get((uintptr_t)block + 4 * PAGE_BYTES), PAGE_ENTRY_NONE);
    // The rest is anybody's.
    char *rest = make(70000, PAGE_BYTES, false);
    assert_ptr_equal(rest, block + 4 * PAGE_BYTES);
    large_free(run_of(rest), (uintptr_t)rest);
    // Up to the next block, and no further.
    const size_t room = (size_t)(behind - block);
    assert_true(large_resize(run, room));
    assert_false(large_resize(run, room + 1));
    assert_int_equal(usable(block), room);
    assert_true(large_resize(run, room - 1));
    assert_int_equal(usable(block), room);
    assert_true(large_resize(run, room - os_page_bytes()));
    assert_int_equal(usable(block), room - os_page_bytes());
    assert_int_equal(arena_check(), 0);
    large_free(run, run->start);
    large_free(run_of(behind), (uintptr_t)behind);
    struct arena_totals totals;
    arena_totals(&totals);
    assert_int_equal(totals.free_bytes, totals.mapped_bytes);
}

static void expect_totals(uint64_t count, uint64_t bytes) {
    struct large_totals totals;
    large_totals(&totals);
    assert_int_equal(totals.count, count);
    assert_int_equal(totals.bytes, bytes);
}

// The sums follow each block, whatever becomes of it.
static void test_totals(void **state) {
    (void)state;
    start();
    expect_totals(0, 0);
    char *block = make(500 * KIB, PAGE_BYTES, false);
    char *other = make(100 * KIB, PAGE_BYTES, false);
    expect_totals(2, 600 * KIB);
    assert_true(large_resize(run_of(block), 300 * KIB));
    expect_totals(2, 400 * KIB);
    large_keep(run_of(block), 200 * KIB);
    expect_totals(2, 300 * KIB);
    assert_true(large_free(run_of(other), (uintptr_t)other));
    expect_totals(1, 200 * KIB);
    assert_true(large_resize(run_of(block), 480 * KIB));
    expect_totals(1, 480 * KIB);
    assert_true(large_free(run_of(block), (uintptr_t)block));
    expect_totals(0, 0);
}

static void test_guard(void **state) {
    (void)state;
    options.guard_gaps = 1;
    start();
    char *block = make(LARGE_BYTES_MAX, PAGE_BYTES, false);
    assert_int_equal(fake_os_state(block + LARGE_BYTES_MAX), FAKE_INACCESSIBLE);
    assert_false(large_resize(run_of(block), LARGE_BYTES_MAX + 1));
    assert_true(large_resize(run_of(block), LARGE_BYTES_MAX - PAGE_BYTES));
    assert_int_equal(usable(block), LARGE_BYTES_MAX - PAGE_BYTES);
    check_entries(block, LARGE_BYTES_MAX, LARGE_ENTRY);
    // Copied, so that the rest is given back.
    assert_false(large_resize(run_of(block), LARGE_BYTES_MAX / 2));
    assert_int_equal(usable(block), LARGE_BYTES_MAX - PAGE_BYTES);
    large_free(run_of(block), (uintptr_t)block);
    check_entries(block, LARGE_BYTES_MAX, PAGE_ENTRY_NONE);
    assert_int_equal(fake_os_bytes(FAKE_INACCESSIBLE), 0);
}

static void test_cleared_when_freed(void **state) {
    (void)state;
    options.zero_on_free = 1;
    start();
    char *block = make(100000, PAGE_BYTES, false);
    memset(block, 1, usable(block));
    large_free(run_of(block), (uintptr_t)block);
    check_zero(block, 100000);
}

// What a shrinking cuts off: of pages that go back, and of those that stay where there are guard pages.
static void test_cleared_when_shrunk(void **state) {
    (void)state;
    options.zero_on_free = 1;
    start();
    for (unsigned guards = 0; guards < 2; guards++) {
        options.guard_gaps = guards;
        char *block = make(300000, PAGE_BYTES, false);
        const size_t before = usable(block);
        memset(block, 1, before);
        assert_true(large_resize(run_of(block), 200000));
        const size_t rest = usable(block);
        assert_int_equal(block[rest - 1], 1);
        check_zero(block + rest, before - rest);
        assert_true(large_resize(run_of(block), 300000));
        assert_int_equal(block[rest - 1], 1);
        assert_true(large_resize(run_of(block), 200000));
        large_free(run_of(block), (uintptr_t)block);
        check_zero(block, before);
    }
}

// Where there is no memory for a copy the block is shorter all the same.
static void test_kept_when_shrunk(void **state) {
    (void)state;
    options.zero_on_free = 1;
    options.guard_gaps = 1;
    start();
    char *block = make(LARGE_BYTES_MAX, PAGE_BYTES, false);
    memset(block, 1, LARGE_BYTES_MAX);
    large_keep(run_of(block), 300000);
    const size_t rest = usable(block);
    assert_in_range(rest, 300000, 300000 + PAGE_BYTES);
    assert_int_equal(block[rest - 1], 1);
    check_zero(block + rest, LARGE_BYTES_MAX - rest);
    check_entries(block, LARGE_BYTES_MAX, LARGE_ENTRY);
    large_free(run_of(block), (uintptr_t)block);
    check_zero(block, LARGE_BYTES_MAX);
}

static void test_want_of_memory(void **state) {
    (void)state;
    start();
    fake_os_fail(FAKE_ANY, 1, true);
    assert_null(large_alloc(100000, PAGE_BYTES, true));
    fake_os_mend();
    make(100000, PAGE_BYTES, true);
    assert_int_equal(arena_check(), 0);
}

// The descriptor of a freed block may tell of another one when a second free comes late, and its page be within a third.
static void test_late_second_free(void **state) {
    (void)state;
    start();
    char *before = make(2 * PAGE_BYTES, PAGE_BYTES, false);
    char *block = make(2 * PAGE_BYTES, PAGE_BYTES, false);
    make(2 * PAGE_BYTES, PAGE_BYTES, false);
    struct run *run = run_of(block);
    assert_true(large_free(run, (uintptr_t)block));
    char *another = make(5 * PAGE_BYTES, PAGE_BYTES, false);
    assert_ptr_equal(run_of(another), run);
    assert_false(large_free(run, (uintptr_t)block));
    assert_true(large_free(run_of(before), (uintptr_t)before));
    char *around = make(4 * PAGE_BYTES, PAGE_BYTES, false);
    assert_ptr_equal(around, before);
    assert_false(large_free(run, (uintptr_t)block));
    assert_int_equal(page_map_get((uintptr_t)block), page_entry(0, PAGE_KIND_LARGE));
    assert_ptr_equal(run_of(another), run);
    assert_true(large_free(run_of(around), (uintptr_t)around));
    assert_true(large_free(run, (uintptr_t)another));
    assert_int_equal(arena_check(), 0);
}

// ---- Threads free the same blocks ----

enum { BLOCK_COUNT = 200, THREAD_COUNT = 3 };

static struct run *shared[BLOCK_COUNT];

static unsigned free_all(uint64_t seed) {
    (void)seed;
    unsigned freed = 0;
    for (unsigned i = 0; i < BLOCK_COUNT; i++) {
        freed += large_free(shared[i], shared[i]->start);
    }
    return freed;
}

static void test_freed_once_by_many(void **state) {
    (void)state;
    start();
    for (unsigned i = 0; i < BLOCK_COUNT; i++) {
        shared[i] = run_of(make(70000 + i * 1000, PAGE_BYTES, false));
    }
    struct team team;
    team_start(&team, THREAD_COUNT, 0, free_all);
    assert_int_equal(team_join(&team), BLOCK_COUNT);
    assert_int_equal(atomic_load_relaxed(&process_counters.value[COUNTER_large_frees]),
                     BLOCK_COUNT);
    assert_int_equal(arena_check(), 0);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_number_of_pages),
        cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_zero_when_asked),
        cmocka_unit_test(test_only_what_was_written_is_cleared),
        cmocka_unit_test(test_found_at_its_start_only),
        cmocka_unit_test(test_resize_in_place),
        cmocka_unit_test(test_guard),
        cmocka_unit_test(test_cleared_when_freed),
        cmocka_unit_test(test_cleared_when_shrunk),
        cmocka_unit_test(test_kept_when_shrunk),
        cmocka_unit_test(test_totals),
        cmocka_unit_test(test_want_of_memory),
        cmocka_unit_test(test_late_second_free),
        cmocka_unit_test(test_freed_once_by_many),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
