// Huge blocks where the system refuses: nothing is lost, and nothing is tried over and over.
#include "isolate.h"

#include "base/bits.h"
#include "config/options.h"
#include "fake_os.h"
#include "heap/huge.h"
#include "huge_blocks.h"
#include "space/metadata.h"
#include "space/page_map.h"

static void test_each_call_of_an_allocation_refused(void **state) {
    (void)state;
    page_map_init();
    unsigned nth = 1;
    for (bool refused = true; refused; nth++) {
        // A place of its own for each, so that each covers a new window.
        const size_t alignment = 2 * GIB << nth;
        const uint64_t before = fake_os_refused();
        fake_os_fail(FAKE_ANY, nth, false);
        char *block = huge_alloc(3 * MIB, alignment, true);
        fake_os_mend();
        refused = fake_os_refused() != before;
        assert_int_equal(block == NULL, refused);
        assert_int_equal(huge_check(), 0);
        assert_int_equal(totals().live_count, refused ? 0 : 1);
    }
    assert_in_range(nth, 3, 6);
}

// As where the limit of addresses has room for the block, and not for what an alignment takes beside it.
static void test_the_wish_for_huge_pages_costs_no_block(void **state) {
    (void)state;
    page_map_init();
    make(3 * MIB);  // the table has its memory
    for (unsigned wishes = 0; wishes <= 1; wishes++) {
        options.huge_pages = wishes ? huge_pages_always : huge_pages_never;
        fake_os_fail(OS_MMAP, 1, false);
        char *block = huge_alloc(20 * MIB, PAGE_BYTES, false);
        fake_os_mend();
        assert_int_equal(block != NULL, wishes);
        assert_int_equal(huge_check(), 0);
    }
    // But for an alignment that the program wants.
    fake_os_fail(OS_MMAP, 1, false);
    assert_null(huge_alloc(20 * MIB, 4 * MIB, false));
    fake_os_mend();
    assert_int_equal(huge_check(), 0);
}

// Whichever move is refused, the request is served, and nothing is lost.
static void test_refused_piece_comes_as_new_memory(void **state) {
    (void)state;
    page_map_init();
    for (uint64_t nth = 1; nth <= 3; nth++) {
        fake_os_fail(OS_MREMAP, nth, true);
        char *block = make_of_pieces(3, 13 * MIB);
        fake_os_mend();
        check_marked(block, nth == 1 ? 0 : 5 * MIB, 5);
        check_marked(block + (nth == 1 ? 0 : (nth == 2 ? 5 : 9) * MIB), MIB, 0);
        mark(block, 13 * MIB, 1);
        drop(block);
        huge_purge(0, true);
        assert_int_equal(totals().kept_bytes, 0);
        assert_int_equal(fake_os_state(block), FAKE_UNMAPPED);
    }
}

static void test_refused_shrink_keeps_the_longer_block(void **state) {
    (void)state;
    page_map_init();
    char *block = make(20 * MIB);
    mark(block, 20 * MIB, 1);
    fake_os_fail(OS_MUNMAP, 1, false);
    assert_true(huge_resize(huge_of(block), 5 * MIB));
    assert_int_equal(huge_of(block)->usable_bytes, 20 * MIB);
    check_marked(block, 5 * MIB, 1);
    check_marked(block + 5 * MIB, 15 * MIB, 0);
    check_entries(block, 20 * MIB, true);
    assert_int_equal(huge_check(), 0);
}

// What the system does not unmap is not to stay in memory.
static void test_refused_unmap_gives_the_memory_back(void **state) {
    (void)state;
    page_map_init();
    options.huge_cache_bytes = 0;
    for (unsigned guarded = 0; guarded <= 1; guarded++) {
        options.guard_gaps = guarded;
        char *block = make(40 * MIB);
        mark(block, 40 * MIB, 1);
        const uint64_t before = fake_os_purged_bytes();
        fake_os_fail(OS_MUNMAP, 1, true);
        drop(block);
        fake_os_mend();
        assert_int_equal(fake_os_purged_bytes() - before, 40 * MIB);
        check_marked(block, 40 * MIB, 0);
        assert_int_equal(totals().kept_bytes, 40 * MIB + guarded * PAGE_BYTES);
        huge_purge(0, true);
        assert_int_equal(totals().kept_bytes, 0);
        assert_int_equal(fake_os_state(block), FAKE_UNMAPPED);
    }
}

// Nor is it cleared by hand where that is not asked for.
static void test_refused_unmap_and_purge(void **state) {
    (void)state;
    page_map_init();
    options.huge_cache_bytes = 0;
    char *block = make(5 * MIB);
    mark(block, 5 * MIB, 1);
    fake_os_fail(FAKE_ANY, 1, true);
    drop(block);
    fake_os_mend();
    // The purge that is refused takes half.
    check_marked(block + 4 * MIB, MIB, 1);
    assert_int_equal(huge_check(), 0);
    huge_purge(0, true);
    assert_int_equal(fake_os_state(block), FAKE_UNMAPPED);
}

// Frees a block of which the system takes the last 32 MiB, the guard with them, and refuses the rest.
static void drop_but_for_its_start(char *block) {
    fake_os_fail(OS_MUNMAP, 2, true);
    drop(block);
    fake_os_mend();
}

static void check_guarded(const char *block, size_t usable_bytes) {
    assert_int_equal(huge_of(block)->usable_bytes, usable_bytes);
    assert_int_equal(fake_os_state(block + usable_bytes - 1), FAKE_WRITABLE);
    assert_int_equal(fake_os_state(block + usable_bytes), FAKE_INACCESSIBLE);
}

// What is left of a mapping whose guard went serves with another one, as a whole or in part.
static void test_what_has_lost_its_guard_serves_with_another(void **state) {
    (void)state;
    page_map_init();
    options.guard_gaps = 1;
    options.huge_cache_bytes = 0;
    for (unsigned cut = 0; cut <= 1; cut++) {
        char *block = make(100 * MIB);
        drop_but_for_its_start(block);
        assert_int_equal(totals().kept_bytes, 68 * MIB + PAGE_BYTES);
        mark(block, 68 * MIB + PAGE_BYTES, 1);
        const uint64_t purged = fake_os_purged_bytes();
        const size_t bytes = (cut ? 40 : 68) * MIB;
        assert_ptr_equal(make(bytes), block);
        check_guarded(block, bytes);
        assert_int_equal(fake_os_purged_bytes() - purged, PAGE_BYTES);
        check_marked(block, bytes, 1);
        assert_int_equal(totals().usable_bytes, bytes);
        assert_int_equal(totals().live_bytes, bytes + PAGE_BYTES);
        struct huge *huge = huge_of(block);
        assert_true(huge_resize(huge, 110 * MIB));
        block = (char *)huge->start;
        check_guarded(block, 110 * MIB);
        drop(block);
        huge_purge(0, true);
        assert_int_equal(totals().kept_bytes, 0);
        assert_int_equal(fake_os_bytes(FAKE_INACCESSIBLE), 0);
    }
}

// Unless a guard would go across two pieces: then its pages are moved, behind which there is one.
static void test_no_guard_goes_across_two_pieces(void **state) {
    (void)state;
    page_map_init();
    options.guard_gaps = 1;
    options.huge_cache_bytes = 0;
    drop_but_for_its_start(make(64 * MIB - PAGE_BYTES / 2));
    char *block = make(64 * MIB);
    assert_int_equal(huge_of(block)->seam_count, 1);
    drop_but_for_its_start(block);
    assert_int_equal(totals().kept_bytes, 32 * MIB + PAGE_BYTES);
    block = make(32 * MIB);
    check_guarded(block, 32 * MIB);
    assert_int_equal(totals().usable_bytes, 32 * MIB);
    drop(block);
    huge_purge(0, true);
    assert_int_equal(totals().kept_bytes, 0);
}

// Each call of growing fails: in place, then the reservation, then the move.
static void test_refused_growth_leaves_the_block_intact(void **state) {
    (void)state;
    page_map_init();
    char *block = make(3 * MIB);
    struct huge *huge = huge_of(block);
    mark(block, 3 * MIB, 1);
    fake_os_block_behind(block);
    const size_t before = fake_os_bytes(FAKE_WRITABLE) + fake_os_bytes(FAKE_INACCESSIBLE);
    for (unsigned nth = 1; nth <= 3; nth++) {
        fake_os_fail(FAKE_ANY, nth, true);
        assert_false(huge_resize(huge, 9 * MIB));
        fake_os_mend();
        assert_int_equal(huge->start, (uintptr_t)block);
        assert_int_equal(huge->usable_bytes, 3 * MIB);
        check_marked(block, 3 * MIB, 1);
        check_entries(block, 3 * MIB, true);
        assert_int_equal(huge_check(), 0);
    }
    // A reservation that could not be used and then not be unmapped is all that may be left.
    const size_t after = fake_os_bytes(FAKE_WRITABLE) + fake_os_bytes(FAKE_INACCESSIBLE);
    assert_true(after - before <= 9 * MIB);
    // A single refusal of the move leaves nothing.
    fake_os_fail(OS_MREMAP, 2, false);
    assert_false(huge_resize(huge, 9 * MIB));
    assert_int_equal(fake_os_bytes(FAKE_WRITABLE) + fake_os_bytes(FAKE_INACCESSIBLE), after);
    assert_true(huge_resize(huge, 9 * MIB));
}

// Where the addresses for a second place are not to be had a block moves all the same, as long as what it lacks is.
static void grow_without_a_second_place(void) {
    char *block = make(40 * MIB);
    struct huge *huge = huge_of(block);
    mark(block, 40 * MIB, 1);
    fake_os_block_behind(block);
    const size_t mapped = fake_os_bytes(FAKE_WRITABLE) + fake_os_bytes(FAKE_INACCESSIBLE) +
                          fake_os_bytes(FAKE_READABLE);
    fake_os_limit_bytes(mapped + 30 * MIB);
    assert_true(huge_resize(huge, 60 * MIB));
    assert_int_not_equal(huge->start, (uintptr_t)block);
    assert_int_equal(fake_os_state(block), FAKE_UNMAPPED);
    check_entries(block, 40 * MIB, false);
    check_entries((char *)huge->start, 60 * MIB, true);
    check_marked((char *)huge->start, 40 * MIB, 1);
    check_marked((char *)huge->start + 40 * MIB, 20 * MIB, 0);
    assert_int_equal(huge_check(), 0);
    // Nor what it lacks.
    assert_false(huge_resize(huge, 90 * MIB));
    assert_int_equal(huge->usable_bytes, 60 * MIB);
    check_entries((char *)huge->start, 60 * MIB, true);
    check_marked((char *)huge->start, 40 * MIB, 1);
    assert_int_equal(huge_check(), 0);
    fake_os_limit_bytes(0);
    drop((char *)huge->start);
    huge_purge(0, true);
}

static void test_growth_without_a_second_place(void **state) {
    (void)state;
    page_map_init();
    assert_non_null(page_map_flat);
    grow_without_a_second_place();
}

// The guard of one comes along: behind the new place it is the block's own, at the old one it is gone.
static void test_growth_without_a_second_place_with_a_guard(void **state) {
    (void)state;
    options.guard_gaps = 1;
    page_map_init();
    const size_t before = fake_os_bytes(FAKE_INACCESSIBLE);
    char *block = make(40 * MIB);
    struct huge *huge = huge_of(block);
    mark(block, 40 * MIB, 1);
    const size_t mapped = fake_os_bytes(FAKE_WRITABLE) + fake_os_bytes(FAKE_INACCESSIBLE) +
                          fake_os_bytes(FAKE_READABLE);
    fake_os_limit_bytes(mapped + 30 * MIB);
    fake_os_fail(OS_MREMAP, 1, false);  // not where it lies
    assert_true(huge_resize(huge, 60 * MIB));
    fake_os_limit_bytes(0);
    assert_int_not_equal(huge->start, (uintptr_t)block);
    block = (char *)huge->start;
    check_marked(block, 40 * MIB, 1);
    assert_int_equal(fake_os_state(block + 60 * MIB - 1), FAKE_WRITABLE);
    assert_int_equal(fake_os_state(block + 60 * MIB), FAKE_INACCESSIBLE);
    assert_int_equal(fake_os_bytes(FAKE_INACCESSIBLE) - before, PAGE_BYTES);
    assert_int_equal(totals().live_bytes, 60 * MIB + PAGE_BYTES);
    assert_int_equal(huge_check(), 0);
    drop(block);
    huge_purge(0, true);
    assert_int_equal(fake_os_bytes(FAKE_INACCESSIBLE), before);
}

static void test_growth_without_a_second_place_or_flat_map(void **state) {
    (void)state;
    fake_os_fail(OS_MMAP, 1, false);
    page_map_init();
    assert_null(page_map_flat);
    grow_without_a_second_place();
}

// Nor is a second place of use for which the map of pages gets no entries: these want addresses as well.
static void test_growth_where_the_second_place_gets_no_entries(void **state) {
    (void)state;
    fake_os_fail(OS_MMAP, 1, false);
    page_map_init();
    assert_null(page_map_flat);
    char *block = make(40 * MIB);
    struct huge *huge = huge_of(block);
    mark(block, 40 * MIB, 1);
    fake_os_block_behind(block);
    // Where it lies it would end with a window: whatever lies higher reaches the next one.
    const size_t usable = 2 * GIB - (uintptr_t)block % GIB;
    assert_true(page_map_cover((uintptr_t)block, usable));
    fake_os_fail(OS_MMAP, 2, false);  // the place, then the entries
    assert_true(huge_resize(huge, usable));
    assert_int_not_equal(huge->start, (uintptr_t)block);
    check_marked((char *)huge->start, 40 * MIB, 1);
    check_entries((char *)huge->start, usable, true);
    assert_int_equal(huge_check(), 0);
}

// Where the system makes no entry of the flat map writable there is no other place either: the block stays.
static void test_growth_where_no_entry_can_be_written(void **state) {
    (void)state;
    page_map_init();
    assert_non_null(page_map_flat);
    char *block = make(40 * MIB);
    struct huge *huge = huge_of(block);
    mark(block, 40 * MIB, 1);
    fake_os_block_behind(block);
    const size_t usable = 2 * GIB - (uintptr_t)block % GIB;
    // Nor where the system would be likely to put it: it puts it elsewhere.
    assert_true(page_map_cover((uintptr_t)block - 3 * usable, 4 * usable));
    fake_os_fail(OS_MPROTECT, 1, true);
    assert_false(huge_resize(huge, usable));
    fake_os_mend();
    assert_int_equal(huge->start, (uintptr_t)block);
    assert_int_equal(huge->usable_bytes, 40 * MIB);
    check_marked(block, 40 * MIB, 1);
    check_entries(block, 40 * MIB, true);
    assert_int_equal(huge_check(), 0);
}

// The system unmapped where a block was to move, refused to move it, and another thread's mapping came there: the block
// stays as it was, that mapping too, and what else was mapped for the block goes.
static void test_a_place_lost_to_another_is_left_alone(void **state) {
    (void)state;
    page_map_init();
    for (unsigned piece_count = 1; piece_count <= 3; piece_count += 2) {
        char *block = piece_count == 1 ? make(12 * MIB) : make_of_pieces(3, 12 * MIB);
        struct huge *huge = huge_of(block);
        mark(block, 12 * MIB, 1);
        fake_os_block_behind(block + 12 * MIB - 1);
        const size_t before = fake_os_bytes(FAKE_WRITABLE) + fake_os_bytes(FAKE_INACCESSIBLE);
        fake_os_lose_destination();
        assert_false(huge_resize(huge, 20 * MIB));
        assert_int_equal(huge->start, (uintptr_t)block);
        check_entries(block, 12 * MIB, true);
        check_marked(block, 12 * MIB, 1);
        assert_int_equal(huge_check(), 0);
        // The other thread's: as long as the first piece was to be.
        assert_int_equal(fake_os_bytes(FAKE_WRITABLE) + fake_os_bytes(FAKE_INACCESSIBLE) - before,
                         piece_count == 1 ? 20 * MIB : 5 * MIB);
        assert_true(huge_resize(huge, 20 * MIB));
        check_marked((char *)huge->start, 12 * MIB, 1);
        drop((char *)huge->start);
        huge_purge(0, true);
    }
}

static void test_refused_unmap_is_tried_again(void **state) {
    (void)state;
    page_map_init();
    char *block = make(5 * MIB);
    drop(block);
    fake_os_fail(OS_MUNMAP, 1, true);
    assert_int_equal(huge_purge(0, true), 0);
    assert_int_equal(huge_check(), 0);
    assert_int_equal(totals().kept_bytes, 5 * MIB);
    // Does not wait for room that is not to be had.
    assert_non_null(huge_alloc(50 * MIB, PAGE_BYTES, true));
    fake_os_mend();
    assert_int_equal(huge_purge(0, true), 5 * MIB);
    assert_int_equal(fake_os_state(block), FAKE_UNMAPPED);
}

// By ticks no more often than the delay says, however many mappings the system refuses.
static void test_refused_unmap_is_not_tried_at_each_tick(void **state) {
    (void)state;
    page_map_init();
    options.purge_delay_ms = 500;
    char *blocks[4];
    for (unsigned i = 0; i < ARRAY_COUNT(blocks); i++) {
        blocks[i] = make(3 * MIB);
    }
    for (unsigned i = 0; i < ARRAY_COUNT(blocks); i++) {
        drop(blocks[i]);
    }
    const uint64_t start_ms = os_clock_ms() + 500;
    fake_os_fail(OS_MUNMAP, 1, true);
    const uint64_t calls = fake_os_calls(OS_MUNMAP);
    for (uint64_t ms = 0; ms < 500; ms += 5) {
        assert_int_equal(huge_purge(start_ms + ms, false), 0);
    }
    assert_int_equal(fake_os_calls(OS_MUNMAP) - calls, ARRAY_COUNT(blocks));
    assert_int_equal(huge_check(), 0);
    fake_os_mend();
    assert_int_equal(huge_purge(start_ms + 500, false), 4 * 3 * MIB);
}

// Nor all of them by each block that is freed, where they are more than may be kept: that block alone.
static void test_refused_unmap_is_not_tried_at_each_free(void **state) {
    (void)state;
    page_map_init();
    options.purge_delay_ms = 500;
    options.huge_cache_bytes = 6 * MIB;
    char *blocks[20];
    for (unsigned i = 0; i < ARRAY_COUNT(blocks); i++) {
        blocks[i] = make(3 * MIB);
    }
    fake_os_fail(OS_MUNMAP, 1, true);
    const uint64_t calls = fake_os_calls(OS_MUNMAP);
    for (unsigned i = 0; i < ARRAY_COUNT(blocks); i++) {
        drop(blocks[i]);
    }
    assert_in_range(fake_os_calls(OS_MUNMAP) - calls, 1, ARRAY_COUNT(blocks));
    for (unsigned i = 0; i < 100; i++) {
        drop(make(3 * MIB));
    }
    assert_in_range(fake_os_calls(OS_MUNMAP) - calls, 1, ARRAY_COUNT(blocks) + 100);
    assert_int_equal(huge_check(), 0);
    fake_os_mend();
    assert_int_equal(huge_purge(os_clock_ms() + 500, false), 20 * 3 * MIB);
    assert_int_equal(huge_refused_bytes, 0);
}

// Nor another one by each block, where they are more than may be kept.
static void test_many_refused_are_not_tried_at_each_free(void **state) {
    (void)state;
    enum { MANY = 1100 };
    static char *blocks[MANY];
    page_map_init();
    options.purge_delay_ms = 500;
    options.huge_cache_bytes = 0;
    for (int i = 0; i < MANY; i++) {
        blocks[i] = make(4096);
    }
    fake_os_fail(OS_MUNMAP, 1, true);
    const uint64_t calls = fake_os_calls(OS_MUNMAP);
    for (int i = 0; i < MANY; i++) {
        drop(blocks[i]);
    }
    assert_in_range(fake_os_calls(OS_MUNMAP) - calls, 1, MANY);
    fake_os_mend();
    huge_purge(0, true);
    assert_int_equal(totals().kept_bytes, 0);
    assert_int_equal(huge_refused_bytes, 0);
    assert_int_equal(huge_check(), 0);
}

// Where the system moves nothing, a block does not ask it for each of a thousand kept mappings.
static void test_many_refused_moves_end(void **state) {
    (void)state;
    enum { MANY = 1000 };
    static char *blocks[MANY];
    page_map_init();
    options.huge_cache_bytes = 8 * GIB;
    for (int i = 0; i < MANY; i++) {
        blocks[i] = make(3 * MIB);
    }
    for (int i = 0; i < MANY; i++) {
        drop(blocks[i]);
    }
    assert_int_equal(totals().kept_bytes, MANY * 3 * MIB);
    fake_os_fail(OS_MREMAP, 1, true);
    const uint64_t calls = fake_os_calls(OS_MREMAP);
    drop(make(64 * MIB));
    assert_in_range(fake_os_calls(OS_MREMAP) - calls, 1, 16);
    fake_os_mend();
    // The others may still be moved.
    char *block = make(64 * MIB);
    assert_int_equal(counted(COUNTER_huge_reuses), 1);
    drop(block);
    assert_int_equal(huge_check(), 0);
}

// What a length wants of the page map stays: one that the system refuses leaves nothing of it behind.
static void test_a_length_that_is_refused_leaves_no_entries(void **state) {
    (void)state;
    page_map_init();
    char *block = make(3 * MIB);
    struct huge *huge = huge_of(block);
    mark(block, 3 * MIB, 1);
    const size_t mapped = fake_os_bytes(FAKE_WRITABLE) + fake_os_bytes(FAKE_INACCESSIBLE) +
                          fake_os_bytes(FAKE_READABLE);
    fake_os_limit_bytes(mapped + GIB);
    const uint64_t bytes = metadata_bytes();
    const uint64_t commits = fake_os_calls(OS_MPROTECT);
    assert_false(huge_resize(huge, 40 * GIB));
    assert_int_equal(metadata_bytes(), bytes);
    assert_int_equal(fake_os_calls(OS_MPROTECT), commits);
    assert_int_equal(huge->start, (uintptr_t)block);
    check_entries(block, 3 * MIB, true);
    check_marked(block, 3 * MIB, 1);
    assert_int_equal(huge_check(), 0);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_call_of_an_allocation_refused),
        cmocka_unit_test(test_the_wish_for_huge_pages_costs_no_block),
        cmocka_unit_test(test_refused_piece_comes_as_new_memory),
        cmocka_unit_test(test_refused_shrink_keeps_the_longer_block),
        cmocka_unit_test(test_refused_growth_leaves_the_block_intact),
        cmocka_unit_test(test_growth_without_a_second_place),
        cmocka_unit_test(test_growth_without_a_second_place_with_a_guard),
        cmocka_unit_test(test_growth_without_a_second_place_or_flat_map),
        cmocka_unit_test(test_growth_where_the_second_place_gets_no_entries),
        cmocka_unit_test(test_growth_where_no_entry_can_be_written),
        cmocka_unit_test(test_a_place_lost_to_another_is_left_alone),
        cmocka_unit_test(test_refused_unmap_gives_the_memory_back),
        cmocka_unit_test(test_what_has_lost_its_guard_serves_with_another),
        cmocka_unit_test(test_no_guard_goes_across_two_pieces),
        cmocka_unit_test(test_refused_unmap_and_purge),
        cmocka_unit_test(test_refused_unmap_is_tried_again),
        cmocka_unit_test(test_refused_unmap_is_not_tried_at_each_tick),
        cmocka_unit_test(test_refused_unmap_is_not_tried_at_each_free),
        cmocka_unit_test(test_many_refused_are_not_tried_at_each_free),
        cmocka_unit_test(test_many_refused_moves_end),
        cmocka_unit_test(test_a_length_that_is_refused_leaves_no_entries),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
