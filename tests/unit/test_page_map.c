// The page map, flat and as the fallback. Addresses are plain numbers here: nothing is mapped there.
#include "isolate.h"

#include <pthread.h>
#include <string.h>

#include "base/bits.h"
#include "fake_os.h"
#include "space/metadata.h"
#include "space/page_map.h"
#include "team.h"

#define WINDOW_BYTES ((uintptr_t)1 << WINDOW_SHIFT)
#define ADDRESS_END ((uintptr_t)1 << ADDRESS_BITS)

static void start_flat(void) {
    page_map_init();
    assert_non_null(page_map_flat);
}

static void start_fallback(void) {
    fake_os_fail(OS_MMAP, 1, false);
    page_map_init();
    assert_null(page_map_flat);
}

static const uintptr_t places[] = {
    0,
    PAGE_BYTES,
    WINDOW_BYTES - PAGE_BYTES,
    WINDOW_BYTES,
    UINT64_C(0x123456780000),
    ADDRESS_END - SUPERSLAB_BYTES,
};

static void check_untouched(void) {
    for (size_t i = 0; i < ARRAY_COUNT(places); i++) {
        assert_int_equal(page_map_get(places[i]), PAGE_ENTRY_NONE);
        assert_int_equal(page_map_get(places[i] + PAGE_BYTES - 1), PAGE_ENTRY_NONE);
        assert_null(page_map_superslab(places[i]));
    }
    assert_int_equal(page_map_get(ADDRESS_END - 1), PAGE_ENTRY_NONE);
}

static void check_set_and_get(void) {
    for (size_t i = 0; i < ARRAY_COUNT(places); i++) {
        const uint64_t entry = page_entry(i + 1, 7);
        assert_true(page_map_cover(places[i], PAGE_BYTES));
        page_map_set(places[i], 1, entry);
        assert_int_equal(page_map_get(places[i]), entry);
        assert_int_equal(page_map_get(places[i] + PAGE_BYTES - 1), entry);
        assert_int_equal(page_entry_number(entry), i + 1);
        assert_int_equal(page_entry_kind(entry), 7);
    }
    for (size_t i = 0; i < ARRAY_COUNT(places); i++) {
        assert_int_equal(page_map_get(places[i]), page_entry(i + 1, 7));
        page_map_set(places[i], 1, PAGE_ENTRY_NONE);
    }
    check_untouched();
}

// A range over three windows.
static void check_long_range(void) {
    const uintptr_t start = 5 * WINDOW_BYTES - 3 * PAGE_BYTES;
    const size_t page_count = WINDOW_PAGES + 7;
    assert_true(page_map_cover(start, page_count * PAGE_BYTES));
    page_map_set(start, page_count, UINT64_C(0x123456789abcf1));
    assert_int_equal(page_map_get(start - 1), PAGE_ENTRY_NONE);
    for (size_t page = 0; page < page_count; page++) {
        assert_int_equal(page_map_get(start + page * PAGE_BYTES), UINT64_C(0x123456789abcf1));
    }
    assert_int_equal(page_map_get(start + page_count * PAGE_BYTES), PAGE_ENTRY_NONE);
}

// Sets its own claim; the main thread lives on, so that the two have different ones.
static void *claim_place(void *place) {
    require(page_map_claim((uintptr_t)place, 42) && page_map_claim_stands((uintptr_t)place));
    return NULL;
}

static void check_claim(void) {
    const uintptr_t place = UINT64_C(0x7f0000000000);
    assert_true(page_map_cover(place, PAGE_BYTES));
    page_map_set(place, 1, 42);
    assert_false(page_map_claim(place, 41));
    assert_int_equal(page_map_get(place), 42);
    assert_false(page_map_claim_stands(place));
    assert_true(page_map_claim(place, 42));
    assert_int_equal(page_entry_kind(page_map_get(place)), PAGE_KIND_NONE);
    assert_true(page_map_claim_stands(place));
    assert_false(page_map_claim(place, 42));
    // Taken back, but not from whoever has the page by now.
    page_map_unclaim(place, 42);
    assert_int_equal(page_map_get(place), 42);
    page_map_unclaim(place, 43);
    assert_int_equal(page_map_get(place), 42);
    // Nor when the block that the page was within has ended, and the page is free.
    assert_true(page_map_claim(place, 42));
    page_map_set(place, 1, PAGE_ENTRY_NONE);
    assert_false(page_map_claim_stands(place));
    page_map_unclaim(place, 42);
    assert_int_equal(page_map_get(place), PAGE_ENTRY_NONE);
    // Another thread's claim is not taken for one's own, nor taken back.
    page_map_set(place, 1, 42);
    pthread_t other;
    assert_int_equal(pthread_create(&other, NULL, claim_place, (void *)place), 0);
    assert_int_equal(pthread_join(other, NULL), 0);
    assert_int_equal(page_entry_kind(page_map_get(place)), PAGE_KIND_NONE);
    assert_false(page_map_claim_stands(place));
    page_map_unclaim(place, 42);
    assert_int_equal(page_entry_kind(page_map_get(place)), PAGE_KIND_NONE);
    page_map_set(place, 1, PAGE_ENTRY_NONE);
}

static void check_entries_between(uintptr_t start, size_t page_count, uint64_t entry) {
    for (size_t page = 0; page < page_count; page++) {
        require(page_map_get(start + page * PAGE_BYTES) == entry);
    }
}

// Neighbours share a machine page with the first and the last entries of what is cleared.
static void check_clear(size_t purged_entries) {
    const size_t per_page = os_page_bytes() / sizeof(uint64_t);
    const uintptr_t start = 3 * WINDOW_BYTES - 9 * PAGE_BYTES;
    const size_t page_count = 3 * per_page + 20;
    const size_t outer_count = 5;
    const uintptr_t outer = start - outer_count * PAGE_BYTES;
    const uintptr_t end = start + page_count * PAGE_BYTES;
    assert_true(page_map_cover(outer, (page_count + 2 * outer_count) * PAGE_BYTES));
    page_map_set(outer, page_count + 2 * outer_count, 5);
    const uint64_t before = fake_os_purged_bytes();
    page_map_clear(start, page_count);
    assert_int_equal(fake_os_purged_bytes() - before, purged_entries * sizeof(uint64_t));
    check_entries_between(outer, outer_count, 5);
    check_entries_between(start, page_count, PAGE_ENTRY_NONE);
    check_entries_between(end, outer_count, 5);
    page_map_set(outer, page_count + 2 * outer_count, PAGE_ENTRY_NONE);
}

static void test_flat_gives_whole_pages_back(void **state) {
    (void)state;
    start_flat();
    const size_t per_page = os_page_bytes() / sizeof(uint64_t);
    check_clear(3 * per_page);
    // A refused call has done half of it, and all is cleared by hand.
    fake_os_fail(OS_MADVISE, 1, true);
    check_clear(0);
    fake_os_mend();
    // One whole page, and two that are shared with neighbours.
    const uint64_t calls = fake_os_calls(OS_MADVISE);
    const uintptr_t start = 2 * WINDOW_BYTES - PAGE_BYTES;
    assert_true(page_map_cover(start, (per_page + 2) * PAGE_BYTES));
    page_map_set(start, per_page + 2, 5);
    page_map_clear(start, per_page + 2);
    check_entries_between(start, per_page + 2, PAGE_ENTRY_NONE);
    assert_int_equal(fake_os_calls(OS_MADVISE), calls);
}

static void test_fallback_is_cleared_by_hand(void **state) {
    (void)state;
    start_fallback();
    check_clear(0);
}

static void check_superslabs(void) {
    static char superslabs[2];
    struct superslab *first = (void *)&superslabs[0];
    struct superslab *second = (void *)&superslabs[1];
    const uintptr_t start = 7 * WINDOW_BYTES - SUPERSLAB_BYTES;
    assert_true(page_map_cover(start, 2 * SUPERSLAB_BYTES));
    page_map_set_superslab(start, first);
    page_map_set_superslab(start + SUPERSLAB_BYTES, second);
    assert_ptr_equal(page_map_superslab(start), first);
    assert_ptr_equal(page_map_superslab(start + SUPERSLAB_BYTES - 1), first);
    assert_ptr_equal(page_map_superslab(start + SUPERSLAB_BYTES), second);
    assert_null(page_map_superslab(start - 1));
    assert_null(page_map_superslab(start + 2 * SUPERSLAB_BYTES));
    page_map_set_superslab(start, NULL);
    assert_null(page_map_superslab(start));
}

static void check_all_of_it(void) {
    check_untouched();
    check_set_and_get();
    check_long_range();
    check_claim();
    check_superslabs();
    // Beyond ADDRESS_BITS there is nothing to cover.
    assert_false(page_map_cover(ADDRESS_END, PAGE_BYTES));
    assert_false(page_map_cover(ADDRESS_END - PAGE_BYTES, 2 * PAGE_BYTES));
}

static void test_flat(void **state) {
    (void)state;
    start_flat();
    check_all_of_it();
    // The windows lie in the one reservation, so the fast path of free finds them there.
    assert_true(page_map_cover(places[4], PAGE_BYTES));
    page_map_set(places[4], 1, 99);
    assert_int_equal(atomic_load_relaxed(&page_map_flat[places[4] >> PAGE_SHIFT]), 99);
}

static void test_fallback(void **state) {
    (void)state;
    start_fallback();
    check_all_of_it();
    assert_int_equal(fake_os_bytes(FAKE_READABLE), 0);
}

static void test_flat_costs_no_memory_until_covered(void **state) {
    (void)state;
    start_flat();
    assert_int_equal(fake_os_bytes(FAKE_READABLE), PAGE_MAP_BYTES);
    assert_int_equal(fake_os_bytes(FAKE_WRITABLE), 0);
    assert_true(page_map_cover(places[4], PAGE_BYTES));
    assert_int_equal(fake_os_bytes(FAKE_READABLE), PAGE_MAP_BYTES - 128 * KIB);
    const uint64_t calls = fake_os_calls(OS_MPROTECT);
    assert_true(page_map_cover(places[4] + 5 * PAGE_BYTES, PAGE_BYTES));
    assert_int_equal(fake_os_calls(OS_MPROTECT), calls);
}

// Of one window: a pointer to its entries and one per superslab, in pairs of cache lines; the entries, when not in the flat
// map.
#define DESCRIPTOR_BYTES align_up(8 + 8 * WINDOW_BYTES / SUPERSLAB_BYTES, 128)
#define ENTRIES_BYTES (8 * WINDOW_BYTES / PAGE_BYTES)

// Covering fails at each call it makes, and works when tried again.
static void check_refused_cover(enum os_call kind, size_t second_bytes) {
    fake_os_fail(kind, 1, false);
    const uint64_t refused = fake_os_refused();
    assert_false(page_map_cover(places[4], PAGE_BYTES));
    assert_int_equal(fake_os_refused(), refused + 1);
    assert_int_equal(page_map_get(places[4]), PAGE_ENTRY_NONE);
    assert_null(page_map_superslab(places[4]));
    const uint64_t bytes_before = metadata_bytes();
    assert_true(page_map_cover(places[4], PAGE_BYTES));
    // What the first attempt had taken already served the second.
    assert_int_equal(metadata_bytes() - bytes_before, second_bytes);
    page_map_set(places[4], 1, 3);
    assert_int_equal(page_map_get(places[4]), 3);
}

static void test_flat_cover_refused_for_want_of_metadata(void **state) {
    (void)state;
    start_flat();
    check_refused_cover(OS_MMAP, DESCRIPTOR_BYTES);
}

static void test_flat_cover_refused_by_mprotect(void **state) {
    (void)state;
    start_flat();
    check_refused_cover(OS_MPROTECT, 0);
}

static void test_fallback_cover_refused(void **state) {
    (void)state;
    start_fallback();
    check_refused_cover(OS_MMAP, DESCRIPTOR_BYTES + ENTRIES_BYTES);
}

static void test_fallback_cover_refused_at_the_entries(void **state) {
    (void)state;
    start_fallback();
    // Leaves room for the window's descriptor, not for its entries.
    while (metadata_alloc(16 * KIB) == NULL) {
    }
    for (unsigned i = 0; i < 14; i++) {
        assert_non_null(metadata_alloc(16 * KIB));
    }
    check_refused_cover(OS_MMAP, ENTRIES_BYTES);
}

// ---- Threads that free one block at the same moment ----

enum { CLAIM_COUNT = 4000, THREAD_COUNT = 4 };

static const uintptr_t claim_start = UINT64_C(0x400000000000);

static unsigned claim_all(uint64_t seed) {
    (void)seed;
    unsigned claimed = 0;
    for (uintptr_t i = 0; i < CLAIM_COUNT; i++) {
        claimed += page_map_claim(claim_start + i * PAGE_BYTES, (uint32_t)i + 1);
    }
    return claimed;
}

static void check_concurrent_claims(void) {
    assert_true(page_map_cover(claim_start, CLAIM_COUNT * PAGE_BYTES));
    for (uintptr_t i = 0; i < CLAIM_COUNT; i++) {
        page_map_set(claim_start + i * PAGE_BYTES, 1, (uint32_t)i + 1);
    }
    struct team team;
    team_start(&team, THREAD_COUNT, 0, claim_all);
    assert_int_equal(team_join(&team), CLAIM_COUNT);
}

static void test_flat_concurrent_claims(void **state) {
    (void)state;
    start_flat();
    check_concurrent_claims();
}

static void test_fallback_concurrent_claims(void **state) {
    (void)state;
    start_fallback();
    check_concurrent_claims();
}

static unsigned cover_all(uint64_t seed) {
    (void)seed;
    for (uintptr_t i = 0; i < 40; i++) {
        require(page_map_cover(claim_start + i * WINDOW_BYTES, PAGE_BYTES));
    }
    return 0;
}

// Readers see the old entry or none, whatever is cleared and set again beside them.
static _Atomic(bool) reads_on;

static unsigned read_entries(uint64_t seed) {
    unsigned wrong = 0;
    for (uint64_t i = seed; atomic_load_relaxed(&reads_on); i++) {
        const uint64_t entry = page_map_get(claim_start + i * 7 % CLAIM_COUNT * PAGE_BYTES);
        wrong += entry != PAGE_ENTRY_NONE && entry != 5;
    }
    return wrong;
}

static void test_flat_concurrent_reads_while_cleared(void **state) {
    (void)state;
    start_flat();
    assert_true(page_map_cover(claim_start, CLAIM_COUNT * PAGE_BYTES));
    atomic_store_relaxed(&reads_on, true);
    struct team team;
    team_start(&team, THREAD_COUNT, 0, read_entries);
    const uint64_t before = fake_os_purged_bytes();
    for (int round = 0; round < 200; round++) {
        page_map_set(claim_start, CLAIM_COUNT, 5);
        page_map_clear(claim_start, CLAIM_COUNT);
        check_entries_between(claim_start, CLAIM_COUNT, PAGE_ENTRY_NONE);
    }
    assert_true(fake_os_purged_bytes() > before);
    atomic_store_relaxed(&reads_on, false);
    assert_int_equal(team_join(&team), 0);
}

static void test_concurrent_cover(void **state) {
    (void)state;
    start_flat();
    struct team team;
    team_start(&team, THREAD_COUNT, 0, cover_all);
    team_join(&team);
    // Each window was opened once.
    assert_int_equal(fake_os_calls(OS_MPROTECT), 40);
}

// Entries for a block of gigabytes whose place is known only when there is no way back: the system has nothing left by then.
static void check_held(void) {
    const size_t bytes = 20 * WINDOW_BYTES;
    const uintptr_t start = 300 * WINDOW_BYTES - PAGE_BYTES;
    assert_true(page_map_hold(bytes));
    fake_os_fail(OS_MMAP, 1, true);
    assert_true(page_map_cover_held(start, bytes));
    fake_os_mend();
    for (uintptr_t at = start; at < start + bytes; at += WINDOW_BYTES) {
        page_map_set(at, 1, 5);
        assert_int_equal(page_map_get(at), 5);
        page_map_set(at, 1, PAGE_ENTRY_NONE);
    }
    // More than can be held.
    assert_false(page_map_hold(ADDRESS_END / 2));
}

static void test_flat_held(void **state) {
    (void)state;
    start_flat();
    check_held();
}

static void test_fallback_held(void **state) {
    (void)state;
    start_fallback();
    check_held();
}

// A window without memory is told of, whichever of them it is, and opened by who asks again.
static void test_flat_held_refused(void **state) {
    (void)state;
    start_flat();
    const size_t bytes = 2 * WINDOW_BYTES;
    const uintptr_t start = 300 * WINDOW_BYTES;
    for (unsigned refused = 0; refused < 2; refused++) {
        const uintptr_t place = start + refused * bytes;
        assert_true(page_map_hold(bytes));
        fake_os_fail(OS_MPROTECT, refused + 1, false);
        assert_false(page_map_cover_held(place, bytes));
        assert_true(page_map_cover(place, bytes));
        page_map_set(place, bytes / PAGE_BYTES, 5);
        check_entries_between(place, bytes / PAGE_BYTES, 5);
    }
}

// 128 windows, of which a block that begins and ends amid one has 126 for itself.
static void test_as_many_are_held_as_there_is_room_for(void **state) {
    (void)state;
    start_flat();
    const uint64_t before = metadata_bytes();
    assert_false(page_map_hold(127 * WINDOW_BYTES));
    assert_int_equal(metadata_bytes(), before);
    for (unsigned i = 0; i < 2; i++) {
        assert_true(page_map_hold(126 * WINDOW_BYTES));
        assert_int_equal(metadata_bytes() - before, 128 * DESCRIPTOR_BYTES);
    }
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flat),
        cmocka_unit_test(test_fallback),
        cmocka_unit_test(test_flat_gives_whole_pages_back),
        cmocka_unit_test(test_fallback_is_cleared_by_hand),
        cmocka_unit_test(test_flat_costs_no_memory_until_covered),
        cmocka_unit_test(test_flat_cover_refused_for_want_of_metadata),
        cmocka_unit_test(test_flat_cover_refused_by_mprotect),
        cmocka_unit_test(test_fallback_cover_refused),
        cmocka_unit_test(test_fallback_cover_refused_at_the_entries),
        cmocka_unit_test(test_flat_concurrent_claims),
        cmocka_unit_test(test_fallback_concurrent_claims),
        cmocka_unit_test(test_flat_concurrent_reads_while_cleared),
        cmocka_unit_test(test_concurrent_cover),
        cmocka_unit_test(test_flat_held),
        cmocka_unit_test(test_fallback_held),
        cmocka_unit_test(test_flat_held_refused),
        cmocka_unit_test(test_as_many_are_held_as_there_is_room_for),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
