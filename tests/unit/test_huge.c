// Huge blocks: mappings of their own, kept for a while when freed, grown without copying.
#include "isolate.h"

#include <string.h>

#include "base/bits.h"
#include "config/counters.h"
#include "config/options.h"
#include "control/learner.h"
#include "fake_os.h"
#include "heap/huge.h"
#include "heap/large.h"
#include "huge_blocks.h"
#include "space/page_map.h"
#include "team.h"

static void test_sizes(void **state) {
    (void)state;
    page_map_init();
    for (size_t bytes = LARGE_BYTES_MAX + 1; bytes < 200 * MIB; bytes = bytes * 3 + 5000) {
        char *block = make(bytes);
        assert_int_equal(huge_of(block)->usable_bytes, align_up(bytes, os_page_bytes()));
        check_entries(block, bytes, true);
        mark(block, bytes, 1);
        assert_int_equal(totals().live_count, 1);
        assert_int_equal(totals().live_bytes, align_up(bytes, os_page_bytes()));
        drop(block);
        check_entries(block, bytes, false);
        assert_int_equal(totals().live_bytes, 0);
        huge_purge(0, true);
        assert_int_equal(fake_os_state(block), FAKE_UNMAPPED);
    }
}

static void test_alignment(void **state) {
    (void)state;
    page_map_init();
    for (size_t alignment = 1; alignment <= 4 * GIB; alignment *= 4) {
        static const size_t sizes[] = {1, 5000, 3 * MIB, 5 * MIB + 1};
        for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
            char *block = huge_alloc(sizes[i], alignment, true);
            assert_non_null(block);
            assert_int_equal((uintptr_t)block % alignment, 0);
            assert_int_equal((uintptr_t)block % PAGE_BYTES, 0);
            assert_int_equal(block[sizes[i] - 1], 0);
            block[sizes[i] - 1] = 1;
            if (i % 2 == 0) {
                drop(block);
            }
        }
    }
    assert_int_equal(huge_check(), 0);
}

static void test_impossible_requests(void **state) {
    (void)state;
    page_map_init();
    assert_null(huge_alloc(PTRDIFF_MAX, PAGE_BYTES, false));
    assert_null(huge_alloc(SIZE_MAX, PAGE_BYTES, false));
    assert_null(huge_alloc((size_t)1 << 46, PAGE_BYTES, false));
    assert_null(huge_alloc(3 * MIB, (size_t)1 << 62, false));
    assert_null(huge_alloc(3 * MIB, (size_t)1 << 46, false));
    assert_int_equal(huge_check(), 0);
    char *block = make(3 * MIB);
    assert_false(huge_resize(huge_of(block), PTRDIFF_MAX));
    assert_false(huge_resize(huge_of(block), SIZE_MAX));
    drop(block);
}

static void test_many_descriptors(void **state) {
    (void)state;
    page_map_init();
    static char *blocks[200];
    for (unsigned i = 0; i < 200; i++) {
        blocks[i] = make(LARGE_BYTES_MAX + 1 + i * 70000);
        blocks[i][0] = (char)i;
    }
    assert_int_equal(totals().live_count, 200);
    for (unsigned i = 0; i < 200; i++) {
        assert_int_equal(blocks[i][0], (char)i);
        assert_ptr_equal(huge_find((uintptr_t)blocks[i] + 2 * MIB), huge_of(blocks[i]));
        drop(blocks[i]);
    }
    assert_int_equal(totals().live_count, 0);
}

// ---- Kept mappings ----

static void test_kept_mapping_is_used_again(void **state) {
    (void)state;
    page_map_init();
    char *block = make(10 * MIB);
    mark(block, 10 * MIB, 1);
    drop(block);
    assert_true(huge_has_kept());
    assert_true(huge_freed_bytes((uintptr_t)block));
    assert_int_equal(totals().kept_bytes, 10 * MIB);
    const uint64_t maps = fake_os_calls(OS_MMAP);
    assert_ptr_equal(make(10 * MIB - 100000), block);
    assert_int_equal(fake_os_calls(OS_MMAP), maps);
    assert_int_equal(counted(COUNTER_huge_reuses), 1);
    assert_false(huge_has_kept());
    assert_false(huge_freed_bytes((uintptr_t)block));
    // What it has is usable.
    assert_int_equal(huge_of(block)->usable_bytes, 10 * MIB);
}

static void test_shortest_kept_mapping_that_is_long_enough(void **state) {
    (void)state;
    page_map_init();
    char *first = make(10 * MIB);
    char *second = make(12 * MIB);
    char *third = make(20 * MIB);
    drop(first);
    drop(second);
    drop(third);
    const uint64_t maps = fake_os_calls(OS_MMAP);
    assert_ptr_equal(make(12 * MIB - 4096), second);
    // What it is too long by stays kept.
    assert_ptr_equal(make(16 * MIB), third);
    assert_ptr_equal(make(7 * MIB + 5000), first);
    assert_int_equal(counted(COUNTER_huge_reuses), 3);
    assert_int_equal(fake_os_calls(OS_MMAP), maps);
    assert_int_equal(totals().kept_bytes, 4 * MIB + 3 * MIB - PAGE_BYTES);
    assert_int_equal(totals().live_bytes, 12 * MIB + 16 * MIB + 7 * MIB + PAGE_BYTES);
    assert_int_equal(totals().live_bytes_max, 42 * MIB);
}

// Each block that comes looks at all of them.
static void test_kept_mappings_are_few(void **state) {
    (void)state;
    enum { MORE = 1100, MOST = 1024 };
    static char *blocks[MORE];
    page_map_init();
    for (int i = 0; i < MORE; i++) {
        blocks[i] = make(4096);
    }
    for (int i = 0; i < MORE; i++) {
        drop(blocks[i]);
        assert_int_equal(totals().kept_bytes, (i < MOST ? i + 1 : MOST) * 4096);
    }
    // The oldest went.
    assert_int_equal(fake_os_state(blocks[MORE - MOST - 1]), FAKE_UNMAPPED);
    assert_int_equal(fake_os_state(blocks[MORE - MOST]), FAKE_WRITABLE);
    huge_purge(0, true);
    assert_int_equal(totals().kept_bytes, 0);
    assert_int_equal(huge_check(), 0);
}

// A guard cannot be cut off: such a mapping serves as a whole or not at all.
static void test_kept_mapping_with_a_guard_is_not_cut(void **state) {
    (void)state;
    options.guard_gaps = 1;
    page_map_init();
    char *block = make(10 * MIB);
    drop(block);
    const uint64_t moves = fake_os_calls(OS_MREMAP);
    assert_ptr_not_equal(make(7 * MIB), block);
    assert_int_equal(fake_os_calls(OS_MREMAP), moves);
    huge_purge(0, true);
    block = make(10 * MIB);
    drop(block);
    assert_ptr_equal(make(8 * MIB), block);
    assert_int_equal(totals().kept_bytes, 0);
}

// ---- Blocks put together from kept mappings ----

static void test_pages_of_kept_mappings_move(void **state) {
    (void)state;
    page_map_init();
    char *block = make_of_pieces(3, 13 * MIB);  // of 3, 4 and 5
    assert_int_equal(fake_os_calls(OS_MREMAP), 3);
    assert_int_equal(counted(COUNTER_huge_reuses), 1);
    // The longest first; what they lack is new.
    check_marked(block, 5 * MIB, 5);
    check_marked(block + 5 * MIB, 4 * MIB, 4);
    check_marked(block + 9 * MIB, 3 * MIB, 3);
    check_marked(block + 12 * MIB, MIB, 0);
    assert_int_equal(totals().kept_bytes, 0);
    assert_int_equal(totals().live_bytes_max, 13 * MIB);
    assert_int_equal(huge_of(block)->seam_count, 3);
    mark(block, 13 * MIB, 9);
    // Freed and cut, the pieces serve again, each by itself.
    drop(block);
    char *lower = make(7 * MIB);
    assert_ptr_equal(lower, block);
    check_marked(lower, 7 * MIB, 9);
    assert_int_equal(huge_of(lower)->seam_count, 1);
    drop(lower);
    block = make(20 * MIB);
    check_marked(block, 13 * MIB, 9);
    check_marked(block + 13 * MIB, 7 * MIB, 0);
    drop(block);
    huge_purge(0, true);
    assert_int_equal(huge_table_state.seam_count, 0);
}

static void test_only_what_is_needed_moves(void **state) {
    (void)state;
    page_map_init();
    char *large = make(10 * MIB);
    char *small = make(6 * MIB);
    mark(large, 10 * MIB, 1);
    mark(small, 6 * MIB, 2);
    drop(large);
    drop(small);
    char *block = make(12 * MIB);
    check_marked(block, 10 * MIB, 1);
    check_marked(block + 10 * MIB, 2 * MIB, 2);
    assert_int_equal(totals().kept_bytes, 4 * MIB);
    assert_ptr_equal(make(4 * MIB), small);
}

static void test_aligned_block_of_kept_pages(void **state) {
    (void)state;
    page_map_init();
    char *freed = make(20 * MIB);
    mark(freed, 20 * MIB, 1);
    drop(freed);
    char *block = huge_alloc(15 * MIB, GIB, false);
    assert_int_equal((uintptr_t)block % GIB, 0);
    check_marked(block, 15 * MIB, 1);
    assert_int_equal(totals().kept_bytes, 5 * MIB);
}

// Cleared pages are new ones: moving others would be in vain.
static void test_zeroed_block_is_not_put_together(void **state) {
    (void)state;
    page_map_init();
    char *freed = make(10 * MIB);
    mark(freed, 10 * MIB, 1);
    drop(freed);
    const uint64_t moves = fake_os_calls(OS_MREMAP);
    char *block = huge_alloc(20 * MIB, PAGE_BYTES, true);
    check_marked(block, 20 * MIB, 0);
    assert_int_equal(fake_os_calls(OS_MREMAP), moves);
}

// Few pieces: what the last one leaves is new memory, and the rest of the kept mappings goes.
static void test_pieces_are_few(void **state) {
    (void)state;
    page_map_init();
    static char *freed[HUGE_PIECES_MAX + 4];
    for (unsigned i = 0; i < ARRAY_COUNT(freed); i++) {
        freed[i] = make(3 * MIB);
        mark(freed[i], 3 * MIB, 1);
    }
    for (unsigned i = 0; i < ARRAY_COUNT(freed); i++) {
        drop(freed[i]);
    }
    char *block = make(ARRAY_COUNT(freed) * 3 * MIB);
    check_marked(block, (HUGE_PIECES_MAX - 2) * 3 * MIB, 1);
    check_marked(block + (HUGE_PIECES_MAX - 1) * 3 * MIB, 3 * MIB, 0);
    assert_int_equal(totals().kept_bytes, 0);
    assert_in_range(huge_of(block)->seam_count, HUGE_PIECES_MAX - 2, HUGE_PIECES_MAX - 1);
}

static void test_block_of_pieces_grows(void **state) {
    (void)state;
    page_map_init();
    for (unsigned refused = 0; refused <= 3; refused++) {
        char *block = make_of_pieces(3, 13 * MIB);
        struct huge *huge = huge_of(block);
        if (refused == 0) {
            assert_true(huge_resize(huge, 14 * MIB));
            assert_int_equal(huge->start, (uintptr_t)block);
        } else {
            fake_os_block_behind(block + 13 * MIB - 1);
            // In place, then piece by piece: of the first one a refusal is the end, others are copied.
            fake_os_fail(OS_MREMAP, 1 + refused, true);
            assert_int_equal(huge_resize(huge, 14 * MIB), refused != 1);
            fake_os_mend();
            if (refused == 1) {
                assert_int_equal(huge->start, (uintptr_t)block);
                assert_true(huge_resize(huge, 14 * MIB));
            }
            check_entries(block, 13 * MIB, false);
            block = (char *)huge->start;
        }
        check_entries(block, 14 * MIB, true);
        check_marked(block, 5 * MIB, 5);
        check_marked(block + 5 * MIB, 4 * MIB, 4);
        check_marked(block + 9 * MIB, 3 * MIB, 3);
        check_marked(block + 12 * MIB, 2 * MIB, 0);
        assert_int_equal(huge_check(), 0);
        assert_true(huge_resize(huge, 8 * MIB));
        check_marked(block + 5 * MIB, 3 * MIB, 4);
        drop(block);
        huge_purge(0, true);
        assert_int_equal(huge_table_state.seam_count, 0);
    }
}

// A block that grows takes kept pages as well.
static void test_growth_takes_kept_pages(void **state) {
    (void)state;
    page_map_init();
    char *block = make(5 * MIB);
    char *freed = make(10 * MIB);
    mark(block, 5 * MIB, 1);
    mark(freed, 10 * MIB, 2);
    drop(freed);
    struct huge *huge = huge_of(block);
    assert_true(huge_resize(huge, 12 * MIB));
    block = (char *)huge->start;
    check_marked(block, 5 * MIB, 1);
    check_marked(block + 5 * MIB, 7 * MIB, 2);
    check_entries(block, 12 * MIB, true);
    assert_int_equal(totals().kept_bytes, 3 * MIB);
    assert_int_equal(totals().live_bytes_max, 15 * MIB);
    assert_int_equal(huge_check(), 0);
}

static void test_growth_by_a_page_takes_no_kept_pages(void **state) {
    (void)state;
    page_map_init();
    struct huge *huge = huge_of(make(5 * MIB));
    drop(make(10 * MIB));
    assert_true(huge_resize(huge, 5 * MIB + 1));
    assert_int_equal(huge->seam_count, 0);
}

static void test_reused_block_is_zero_when_asked(void **state) {
    (void)state;
    page_map_init();
    char *block = make(5 * MIB);
    for (unsigned refused = 0; refused <= 1; refused++) {
        memset(block, 1, 5 * MIB);
        drop(block);
        if (refused) {
            fake_os_fail(OS_MADVISE, 1, false);
        }
        char *again = huge_alloc(5 * MIB - 100, PAGE_BYTES, true);
        assert_ptr_equal(again, block);
        for (size_t at = 0; at < 5 * MIB - 100; at += 100) {
            assert_int_equal(again[at], 0);
        }
        assert_int_equal(again[5 * MIB - 101], 0);
    }
    assert_int_equal(fake_os_refused(), 1);
}

// As in the child of a fork whose namespace has a time of its own.
static void test_kept_no_longer_where_the_clock_goes_back(void **state) {
    (void)state;
    page_map_init();
    options.purge_delay_ms = 500;
    fake_os_pass_ms(1000000);
    char *first = make(5 * MIB);
    char *second = make(6 * MIB);
    drop(first);
    assert_int_equal(huge_purge(os_clock_ms(), false), 0);
    fake_os_pass_ms(-UINT64_C(900000));
    drop(second);
    assert_int_equal(huge_purge(os_clock_ms(), false), 5 * MIB);
    fake_os_pass_ms(500);
    assert_int_equal(huge_purge(os_clock_ms(), false), 6 * MIB);
    assert_in_range(huge_table_state.seen_ms, os_clock_ms(), os_clock_ms());
    assert_in_range(huge_table_state.decay_due_ms, os_clock_ms(), os_clock_ms() + 500);
    assert_int_equal(huge_check(), 0);
}

static void test_kept_until_the_delay_has_passed(void **state) {
    (void)state;
    page_map_init();
    options.purge_delay_ms = 500;
    char *first = make(5 * MIB);
    char *second = make(6 * MIB);
    drop(first);
    fake_os_pass_ms(300);
    drop(second);
    fake_os_pass_ms(199);
    assert_int_equal(huge_purge(os_clock_ms(), false), 0);
    fake_os_pass_ms(1);
    assert_int_equal(huge_purge(os_clock_ms(), false), 5 * MIB);
    assert_int_equal(fake_os_state(first), FAKE_UNMAPPED);
    assert_int_equal(fake_os_state(second), FAKE_WRITABLE);
    fake_os_pass_ms(299);
    assert_int_equal(huge_purge(os_clock_ms(), false), 0);
    fake_os_pass_ms(1);
    assert_int_equal(huge_purge(os_clock_ms(), false), 6 * MIB);
    assert_false(huge_has_kept());
    assert_int_equal(huge_check(), 0);
}

static void test_not_kept_beyond_the_limit_or_without_delay(void **state) {
    (void)state;
    learner_start();
    page_map_init();
    options.huge_cache_bytes = 8 * MIB;
    char *first = make(5 * MIB);
    char *second = make(5 * MIB);
    drop(first);
    assert_int_equal(fake_os_state(first), FAKE_WRITABLE);
    // The older one goes, as far as needed.
    drop(second);
    assert_int_equal(fake_os_state(second), FAKE_WRITABLE);
    assert_int_equal(fake_os_state(first + 3 * MIB - 1), FAKE_WRITABLE);
    assert_int_equal(fake_os_state(first + 3 * MIB), FAKE_UNMAPPED);
    assert_int_equal(totals().kept_bytes, 8 * MIB);
    char *third = make(20 * MIB);
    mark(third, 20 * MIB, 1);
    drop(third);
    // The 2 MiB that went just before were wanted again: so much more stays.
    assert_int_equal(totals().kept_bytes, 10 * MIB);
    huge_purge(0, true);
    options.purge_delay_ms = 0;
    char *fourth = make(7 * MIB);
    drop(fourth);
    assert_int_equal(fake_os_state(fourth), FAKE_UNMAPPED);
}

// Kept and live mappings together stay below what was live before.
static void test_kept_mappings_make_room(void **state) {
    (void)state;
    page_map_init();
    char *first = make(20 * MIB);
    fake_os_pass_ms(1);
    char *second = make(10 * MIB);  // at most 30 MiB were live
    drop(first);
    fake_os_pass_ms(1);
    drop(second);
    assert_int_equal(totals().kept_bytes, 30 * MIB);
    // A zeroed block takes neither, being longer: the older one goes in part.
    char *third = huge_alloc(25 * MIB, PAGE_BYTES, true);
    assert_non_null(third);
    assert_int_equal(totals().kept_bytes, 5 * MIB);
    assert_int_equal(fake_os_state(first), FAKE_UNMAPPED);
    assert_int_equal(fake_os_state(second + 5 * MIB - 1), FAKE_WRITABLE);
    assert_int_equal(fake_os_state(second + 5 * MIB), FAKE_UNMAPPED);
    assert_int_equal(totals().live_bytes_max, 30 * MIB);
    assert_non_null(huge_alloc(40 * MIB, PAGE_BYTES, true));
    assert_int_equal(totals().kept_bytes, 0);
    assert_int_equal(totals().live_bytes_max, 65 * MIB);
}

static void test_cleared_when_freed(void **state) {
    (void)state;
    options.zero_on_free = 1;
    page_map_init();
    char *block = make(5 * MIB);
    mark(block, 5 * MIB, 1);
    drop(block);
    check_marked(block, 5 * MIB, 0);
    assert_ptr_equal(make(5 * MIB), block);
    // What cannot be cleared is not kept.
    fake_os_fail(OS_MADVISE, 1, false);
    drop(block);
    assert_int_equal(fake_os_state(block), FAKE_UNMAPPED);
}

// ---- Resizing ----

static void test_grow_in_place(void **state) {
    (void)state;
    page_map_init();
    char *block = make(3 * MIB);
    mark(block, 3 * MIB, 1);
    assert_true(huge_resize(huge_of(block), 7 * MIB + 1));
    assert_int_equal(huge_of(block)->usable_bytes, 7 * MIB + os_page_bytes());
    check_marked(block, 3 * MIB, 1);
    check_entries(block, 7 * MIB + 1, true);
    mark(block, 7 * MIB + 1, 2);
    assert_int_equal(counted(COUNTER_huge_moves), 0);
    assert_int_equal(huge_check(), 0);
    assert_int_equal(totals().live_count, 1);
    // Pages that it had are not entered again.
    page_map_set((uintptr_t)block + MIB, 1, PAGE_ENTRY_NONE);
    assert_true(huge_resize(huge_of(block), 8 * MIB));
    assert_int_equal(page_map_get((uintptr_t)block + MIB), PAGE_ENTRY_NONE);
}

static void test_grow_by_moving(void **state) {
    (void)state;
    page_map_init();
    char *block = make(3 * MIB);
    struct huge *huge = huge_of(block);
    mark(block, 3 * MIB, 1);
    fake_os_block_behind(block);
    assert_true(huge_resize(huge, 9 * MIB));
    char *moved = (char *)huge->start;
    assert_ptr_not_equal(moved, block);
    assert_int_equal(fake_os_state(block), FAKE_UNMAPPED);
    check_entries(block, 3 * MIB, false);
    check_entries(moved, 9 * MIB, true);
    check_marked(moved, 3 * MIB, 1);
    check_marked(moved + 3 * MIB, 6 * MIB, 0);
    assert_int_equal(counted(COUNTER_huge_moves), 1);
    assert_int_equal(huge_check(), 0);
    assert_int_equal(totals().live_bytes, 9 * MIB);
    drop(moved);
}

static void test_shrink(void **state) {
    (void)state;
    page_map_init();
    char *block = make(20 * MIB);
    struct huge *huge = huge_of(block);
    mark(block, 20 * MIB, 1);
    assert_true(huge_resize(huge, 5 * MIB + 1));
    assert_int_equal(huge->start, (uintptr_t)block);
    assert_int_equal(huge->usable_bytes, 5 * MIB + os_page_bytes());
    check_marked(block, 5 * MIB, 1);
    check_entries(block, 5 * MIB + 1, true);
    check_entries(block + 5 * MIB + PAGE_BYTES, 15 * MIB - PAGE_BYTES, false);
    assert_int_equal(fake_os_state(block + 6 * MIB), FAKE_UNMAPPED);
    assert_int_equal(huge_check(), 0);
    assert_true(huge_resize(huge, 5 * MIB + 2));  // nothing to do
    // The rest is there again when it grows.
    assert_true(huge_resize(huge, 20 * MIB));
    check_marked((char *)huge->start + 6 * MIB, 14 * MIB, 0);
}

static void test_growth_over_a_window_of_the_page_map(void **state) {
    (void)state;
    page_map_init();
    char *block = huge_alloc(3 * MIB, GIB, false);
    assert_non_null(block);
    struct huge *huge = huge_of(block);
    fake_os_fail(OS_MPROTECT, 1, true);
    assert_false(huge_resize(huge, 2 * GIB));
    assert_int_equal(huge_check(), 0);
    check_entries(block, 3 * MIB, true);
    fake_os_mend();
    assert_true(huge_resize(huge, 2 * GIB));
    ((char *)huge->start)[2 * GIB - 1] = 1;
    assert_ptr_equal(huge_find(huge->start + 2 * GIB - 1), huge);
}

// ---- Guards ----

static void test_guard(void **state) {
    (void)state;
    options.guard_gaps = 1;
    page_map_init();
    char *block = make(3 * MIB + 1);
    const size_t usable = 3 * MIB + os_page_bytes();
    assert_int_equal(fake_os_state(block + usable - 1), FAKE_WRITABLE);
    assert_int_equal(fake_os_state(block + usable), FAKE_INACCESSIBLE);
    assert_int_equal(totals().usable_bytes, usable);
    assert_int_equal(totals().live_bytes, usable + PAGE_BYTES);
    drop(block);
    assert_ptr_equal(make(3 * MIB), block);
    drop(block);
    huge_purge(0, true);
    assert_int_equal(fake_os_bytes(FAKE_INACCESSIBLE), 0);
    // A refused guard is only weaker.
    fake_os_fail(OS_MPROTECT, 1, true);
    block = make(3 * MIB);
    assert_int_equal(fake_os_state(block + 3 * MIB), FAKE_WRITABLE);
    drop(block);
    huge_purge(0, true);
    assert_int_equal(fake_os_state(block), FAKE_UNMAPPED);
}

// A block that grows takes its guard along, where it lies or to another place, and copies nothing.
static void test_guard_of_a_block_that_grows(void **state) {
    (void)state;
    options.guard_gaps = 1;
    page_map_init();
    char *block = make(3 * MIB);
    struct huge *huge = huge_of(block);
    for (unsigned moves = 0; moves <= 1; moves++) {
        const size_t usable = (5 + moves) * MIB;
        block[0] = 7;
        if (moves != 0) {
            fake_os_fail(OS_MREMAP, 1, false);
        }
        assert_true(huge_resize(huge, usable));
        block = (char *)huge->start;
        assert_int_equal(block[0], 7);
        assert_int_equal(fake_os_state(block + usable - 1), FAKE_WRITABLE);
        assert_int_equal(fake_os_state(block + usable), FAKE_INACCESSIBLE);
        assert_int_equal(fake_os_bytes(FAKE_INACCESSIBLE), PAGE_BYTES);
        assert_int_equal(totals().usable_bytes, usable);
        assert_int_equal(totals().live_bytes, usable + PAGE_BYTES);
        assert_int_equal(huge_check(), 0);
    }
    // Nothing can be had: it is as before.
    fake_os_fail(OS_MMAP, 1, true);
    fake_os_fail(OS_MREMAP, 1, true);
    assert_false(huge_resize(huge, 8 * MIB));
    assert_int_equal(fake_os_state(block + 6 * MIB), FAKE_INACCESSIBLE);
    assert_int_equal(totals().live_bytes, 6 * MIB + PAGE_BYTES);
    // One that shrinks stays before its guard, without what is left of its memory; by half it is the caller's to copy.
    block[4 * MIB - 1] = block[4 * MIB] = block[6 * MIB - 1] = 7;
    assert_true(huge_resize(huge, 4 * MIB));
    assert_ptr_equal((char *)huge->start, block);
    assert_int_equal(block[4 * MIB - 1], 7);
    assert_int_equal(block[4 * MIB] | block[6 * MIB - 1], 0);
    assert_int_equal(fake_os_state(block + 6 * MIB), FAKE_INACCESSIBLE);
    assert_int_equal(totals().usable_bytes, 6 * MIB);
    assert_false(huge_resize(huge, 3 * MIB));
    drop(block);
    huge_purge(0, true);
    assert_int_equal(fake_os_bytes(FAKE_INACCESSIBLE), 0);
}

// Blocks beyond so many have none.
static void test_guards_are_bounded(void **state) {
    (void)state;
    options.guard_gaps = 1;
    page_map_init();
    enum { BOUND = 8192 };
    char *block = NULL;
    for (unsigned i = 0; i < BOUND; i++) {
        block = make(3 * MIB);
    }
    assert_int_equal(fake_os_state(block + 3 * MIB), FAKE_INACCESSIBLE);
    char *beyond = make(3 * MIB);
    assert_int_equal(fake_os_state(beyond + 3 * MIB), FAKE_WRITABLE);
    assert_int_equal(totals().usable_bytes, (BOUND + 1) * 3 * MIB);
    drop(beyond);
    drop(block);
    huge_purge(0, true);
    block = make(3 * MIB);
    assert_int_equal(fake_os_state(block + 3 * MIB), FAKE_INACCESSIBLE);
}

static void test_huge_page_wishes(void **state) {
    (void)state;
    options.huge_pages = huge_pages_always;
    page_map_init();
    char *block = make(5 * MIB);
    assert_int_equal(fake_os_wish(block + 5 * MIB - 1), OS_HUGE_PAGES_ALWAYS);
}

// ---- Threads ----

enum { BLOCK_COUNT = 100, THREAD_COUNT = 3 };

static char *shared[BLOCK_COUNT];
static struct huge *shared_huge[BLOCK_COUNT];

static unsigned free_all(uint64_t seed) {
    (void)seed;
    unsigned freed = 0;
    for (unsigned i = 0; i < BLOCK_COUNT; i++) {
        freed += huge_free(shared_huge[i], (uintptr_t)shared[i]);
    }
    return freed;
}

static void test_freed_once_by_many(void **state) {
    (void)state;
    page_map_init();
    for (unsigned i = 0; i < BLOCK_COUNT; i++) {
        shared[i] = make(3 * MIB);
        shared_huge[i] = huge_of(shared[i]);
    }
    struct team team;
    team_start(&team, THREAD_COUNT, 0, free_all);
    assert_int_equal(team_join(&team), BLOCK_COUNT);
    assert_int_equal(huge_check(), 0);
    assert_int_equal(totals().live_count, 0);
}

static unsigned churn(uint64_t random_state) {
    char *mine[6] = {NULL};
    size_t bytes[6];
    for (unsigned n = 0; n < 400; n++) {
        const unsigned i = (unsigned)(random_next(&random_state) % 6);
        const size_t wanted = 3 * MIB + random_next(&random_state) % 64 * 100000;
        if (mine[i] == NULL) {
            mine[i] = huge_alloc(wanted, PAGE_BYTES, n % 2 == 0);
            require(mine[i] != NULL);
            bytes[i] = wanted;
        } else if (n % 3 == 0) {
            struct huge *huge = huge_find((uintptr_t)mine[i]);
            require(huge_resize(huge, wanted));
            mine[i] = (char *)huge->start;
            bytes[i] = wanted;
        } else {
            require(mine[i][0] == (char)(i + 1) && mine[i][bytes[i] - 1] == (char)(i + 1));
            require(huge_free(huge_find((uintptr_t)mine[i]), (uintptr_t)mine[i]));
            mine[i] = NULL;
            continue;
        }
        mine[i][0] = mine[i][bytes[i] - 1] = (char)(i + 1);
        if (n % 50 == 0) {
            huge_purge(os_clock_ms(), n % 100 == 0);
            require(huge_check() == 0);
        }
    }
    for (unsigned i = 0; i < 6; i++) {
        if (mine[i] != NULL) {
            require(huge_free(huge_find((uintptr_t)mine[i]), (uintptr_t)mine[i]));
        }
    }
    return 0;
}

static void test_threads(void **state) {
    (void)state;
    page_map_init();
    struct team team;
    team_start(&team, THREAD_COUNT, test_seed(), churn);
    team_join(&team);
    huge_purge(0, true);
    assert_int_equal(huge_check(), 0);
    assert_int_equal(totals().live_bytes + totals().kept_bytes, 0);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_impossible_requests),
        cmocka_unit_test(test_many_descriptors),
        cmocka_unit_test(test_kept_mapping_is_used_again),
        cmocka_unit_test(test_shortest_kept_mapping_that_is_long_enough),
        cmocka_unit_test(test_kept_mappings_are_few),
        cmocka_unit_test(test_kept_mapping_with_a_guard_is_not_cut),
        cmocka_unit_test(test_pages_of_kept_mappings_move),
        cmocka_unit_test(test_only_what_is_needed_moves),
        cmocka_unit_test(test_aligned_block_of_kept_pages),
        cmocka_unit_test(test_zeroed_block_is_not_put_together),
        cmocka_unit_test(test_pieces_are_few),
        cmocka_unit_test(test_block_of_pieces_grows),
        cmocka_unit_test(test_growth_takes_kept_pages),
        cmocka_unit_test(test_growth_by_a_page_takes_no_kept_pages),
        cmocka_unit_test(test_reused_block_is_zero_when_asked),
        cmocka_unit_test(test_kept_until_the_delay_has_passed),
        cmocka_unit_test(test_kept_no_longer_where_the_clock_goes_back),
        cmocka_unit_test(test_not_kept_beyond_the_limit_or_without_delay),
        cmocka_unit_test(test_kept_mappings_make_room),
        cmocka_unit_test(test_cleared_when_freed),
        cmocka_unit_test(test_grow_in_place),
        cmocka_unit_test(test_grow_by_moving),
        cmocka_unit_test(test_shrink),
        cmocka_unit_test(test_growth_over_a_window_of_the_page_map),
        cmocka_unit_test(test_guard),
        cmocka_unit_test(test_guard_of_a_block_that_grows),
        cmocka_unit_test(test_guards_are_bounded),
        cmocka_unit_test(test_huge_page_wishes),
        cmocka_unit_test(test_freed_once_by_many),
        cmocka_unit_test(test_threads),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
