// Superslabs and runs, against an array of pages.
#include "isolate.h"

#include <string.h>

#include "base/bits.h"
#include "config/options.h"
#include "fake_os.h"
#include "plain_runs.h"
#include "space/arena.h"
#include "space/arena_purge.h"
#include "space/metadata.h"
#include "space/page_map.h"
#include "team.h"

// ---- The model: who has each page of each superslab ----

enum { RUNS_MAX = 400, SUPERSLABS_MAX = RUNS_MAX + 1, FREE_PAGE = -1, STUCK_PAGE = -2 };

struct taken {
    struct run *run;
    unsigned page_count;
    bool guard;
    unsigned char mark;
};

static struct taken runs[RUNS_MAX];
static struct {
    uintptr_t start;
    int owner[SUPERSLAB_PAGES];  // index into runs, or FREE_PAGE
} superslabs[SUPERSLABS_MAX];

static void start(void) {
    page_map_init();
    for (unsigned i = 0; i < SUPERSLABS_MAX; i++) {
        superslabs[i].start = 0;
    }
}

static int *owner_at(uintptr_t address) {
    const uintptr_t start = align_down(address, SUPERSLAB_BYTES);
    unsigned i = 0;
    while (i < SUPERSLABS_MAX && superslabs[i].start != start) {
        i++;
    }
    if (i == SUPERSLABS_MAX) {
        // A new one: into the first unused place.
        for (i = 0; i < SUPERSLABS_MAX && superslabs[i].start != 0; i++) {
        }
        assert_true(i < SUPERSLABS_MAX);
        superslabs[i].start = start;
        for (unsigned page = 0; page < SUPERSLAB_PAGES; page++) {
            superslabs[i].owner[page] = FREE_PAGE;
        }
    }
    return &superslabs[i].owner[(address - start) >> PAGE_SHIFT];
}

static unsigned span(const struct taken *taken) {
    return taken->page_count + (taken->guard ? 1 : 0);
}

static void own(const struct taken *taken, unsigned from, unsigned to, int before, int after) {
    for (unsigned page = from; page < to; page++) {
        int *owner = owner_at(taken->run->start + page * PAGE_BYTES);
        assert_int_equal(*owner, before);
        *owner = after;
    }
}

// Every 4 KiB carries the run's mark, so that two runs on one page would show.
static void fill(const struct taken *taken, unsigned from) {
    for (size_t at = from * PAGE_BYTES; at < taken->page_count * PAGE_BYTES; at += 4096) {
        *(unsigned char *)(taken->run->start + at) = taken->mark;
    }
}

static void check_filled(const struct taken *taken) {
    for (size_t at = 0; at < taken->page_count * PAGE_BYTES; at += 4096) {
        assert_int_equal(*(unsigned char *)(taken->run->start + at), taken->mark);
    }
}

static void check_zero(uintptr_t start, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 4096) {
        assert_int_equal(*(unsigned char *)(start + at), 0);
    }
}

// The arena as a whole agrees with the model.
static void check(void) {
    struct arena_totals totals;
    arena_totals(&totals);
    size_t free_pages = 0;  // in no run
    size_t known = 0;
    for (unsigned i = 0; i < SUPERSLABS_MAX; i++) {
        if (superslabs[i].start != 0 && page_map_superslab(superslabs[i].start) == NULL) {
            // It was unmapped: only a wholly free one may be.
            for (unsigned page = 0; page < SUPERSLAB_PAGES; page++) {
                assert_int_equal(superslabs[i].owner[page], FREE_PAGE);
            }
            assert_int_equal(fake_os_state((void *)superslabs[i].start), FAKE_UNMAPPED);
            superslabs[i].start = 0;
        }
        if (superslabs[i].start != 0) {
            known++;
            for (unsigned page = 0; page < SUPERSLAB_PAGES; page++) {
                free_pages += superslabs[i].owner[page] < 0;
            }
        }
    }
    assert_int_equal(totals.mapped_bytes, known * SUPERSLAB_BYTES);
    assert_int_equal(totals.free_bytes, free_pages * PAGE_BYTES);
    assert_true(totals.dirty_bytes <= totals.free_bytes);
    assert_true(totals.mapped_bytes_max >= totals.mapped_bytes);
    assert_int_equal(arena_check(), 0);
}

static void take(int index, unsigned page_count, size_t alignment, bool guard) {
    struct taken *taken = &runs[index];
    uint64_t used = UINT64_MAX;
    taken->run = arena_take(page_count, alignment, guard, &used);
    assert_non_null(taken->run);
    taken->page_count = page_count;
    taken->guard = guard;
    taken->mark = (unsigned char)(index % 250 + 1);
    assert_int_equal(taken->run->page_count, page_count);
    assert_int_equal(taken->run->start % (alignment < PAGE_BYTES ? PAGE_BYTES : alignment), 0);
    own(taken, 0, span(taken), FREE_PAGE, index);
    for (unsigned page = 0; page < page_count; page++) {
        if ((used & bit(page)) == 0) {
            check_zero(taken->run->start + page * PAGE_BYTES, PAGE_BYTES);
        }
    }
    if (guard) {
        assert_int_equal(fake_os_state((char *)taken->run->start + page_count * PAGE_BYTES),
                         FAKE_INACCESSIBLE);
    }
    fill(taken, 0);
}

static void give(int index) {
    struct taken *taken = &runs[index];
    check_filled(taken);
    own(taken, 0, span(taken), index, FREE_PAGE);
    arena_give(taken->run);
    taken->run = NULL;
}

static void extend(int index, unsigned more) {
    struct taken *taken = &runs[index];
    const unsigned place = (unsigned)(taken->run->start % SUPERSLAB_BYTES >> PAGE_SHIFT);
    const unsigned before = taken->page_count;
    bool possible = !taken->guard && place + before + more <= SUPERSLAB_PAGES;
    for (unsigned page = before; possible && page < before + more; page++) {
        possible = *owner_at(taken->run->start + page * PAGE_BYTES) == FREE_PAGE;
    }
    assert_int_equal(arena_extend(taken->run, before + more), possible);
    if (possible) {
        taken->page_count = before + more;
        own(taken, before, taken->page_count, FREE_PAGE, index);
        fill(taken, before);
    }
    assert_int_equal(taken->run->page_count, taken->page_count);
}

static void shorten(int index, unsigned page_count) {
    struct taken *taken = &runs[index];
    arena_shorten(taken->run, page_count);
    if (!taken->guard) {
        own(taken, page_count, taken->page_count, index, FREE_PAGE);
        taken->page_count = page_count;
    }
    assert_int_equal(taken->run->page_count, taken->page_count);
    check_filled(taken);
}

static void check_find(int index) {
    const struct taken *taken = &runs[index];
    assert_ptr_equal(arena_find(taken->run->start), taken->run);
    assert_ptr_equal(arena_find(taken->run->start + 1), taken->run);
    assert_ptr_equal(arena_find(taken->run->start + taken->page_count * PAGE_BYTES - 1),
                     taken->run);
}

static void step(unsigned n, uint64_t *random_state) {
    const uint64_t dice = random_next(random_state);
    const int index = (int)(dice % RUNS_MAX);
    const unsigned most = dice >> 20 & 1 ? 4 : dice >> 21 & 1 ? 16 : SUPERSLAB_PAGES;
    const unsigned amount = 1 + (unsigned)(dice >> 32) % most;
    if (runs[index].run == NULL) {
        const bool guard = (dice >> 40) % 8 == 0 && amount < SUPERSLAB_PAGES;
        const size_t alignment =
            (dice >> 44) % 4 == 0 ? PAGE_BYTES << (dice >> 48) % 7 : PAGE_BYTES;
        take(index, amount, alignment, guard);
        return;
    }
    check_find(index);
    switch (dice >> 50 & 3) {
    case 0:
        extend(index, amount);
        break;
    case 1:
        shorten(index, 1 + amount % runs[index].page_count);
        break;
    default:
        give(index);
        break;
    }
    if (n % 16 == 0) {
        fake_os_pass_ms(dice >> 56);
        arena_purge(os_clock_ms(), (dice >> 55 & 7) == 0 ? ARENA_PURGE_ALL : 8 * MIB);
    }
}

static void random_steps(unsigned count) {
    uint64_t random_state = test_seed();
    for (unsigned n = 0; n < count; n++) {
        step(n, &random_state);
        check();
    }
    for (int i = 0; i < RUNS_MAX; i++) {
        if (runs[i].run != NULL) {
            give(i);
            check();
        }
    }
    arena_purge(os_clock_ms(), ARENA_PURGE_ALL);
    check();
    struct arena_totals totals;
    arena_totals(&totals);
    assert_int_equal(totals.mapped_bytes, SUPERSLAB_BYTES);
    assert_int_equal(totals.dirty_bytes, 0);
    assert_int_equal(arena_purge_due(), UINT64_MAX);
}

static void test_random_operations(void **state) {
    (void)state;
    start();
    random_steps(3000);
}

static void test_random_operations_without_delay(void **state) {
    (void)state;
    start();
    options.purge_delay_ms = 0;
    random_steps(1000);
}

static void test_random_operations_fallback_map(void **state) {
    (void)state;
    fake_os_fail(OS_MMAP, 1, false);
    start();
    random_steps(1000);
}

static void test_random_operations_large_machine_pages(void **state) {
    (void)state;
    fake_os_set_page_bytes(64 * KIB);
    start();
    random_steps(1000);
}

// ---- Placement ----

static void test_every_length_at_every_alignment(void **state) {
    (void)state;
    start();
    for (size_t alignment = PAGE_BYTES; alignment <= SUPERSLAB_BYTES; alignment *= 2) {
        for (unsigned page_count = 1; page_count <= SUPERSLAB_PAGES; page_count++) {
            take(0, page_count, alignment, false);
            take(1, 1, alignment, false);
            check();
            give(0);
            give(1);
        }
    }
}

static void test_lowest_address_first(void **state) {
    (void)state;
    start();
    struct run *first = take_plain(2);
    struct run *second = take_plain(3);
    struct run *third = take_plain(1);
    assert_int_equal(second->start, first->start + 2 * PAGE_BYTES);
    assert_int_equal(third->start, second->start + 3 * PAGE_BYTES);
    arena_give(second);
    assert_int_equal(take_plain(1)->start, first->start + 2 * PAGE_BYTES);
}

static void test_neighbouring_free_runs_are_one(void **state) {
    (void)state;
    start();
    struct run *parts[8];
    for (unsigned i = 0; i < 8; i++) {
        parts[i] = take_plain(8);
    }
    const uintptr_t start_of_all = parts[0]->start;
    static const unsigned order[] = {3, 1, 7, 5, 0, 2, 6, 4};
    for (unsigned i = 0; i < 8; i++) {
        arena_give(parts[order[i]]);
        assert_int_equal(arena_check(), 0);
    }
    assert_int_equal(take_plain(64)->start, start_of_all);
}

static void test_best_fit_over_superslabs(void **state) {
    (void)state;
    start();
    struct run *roomy = take_plain(20);
    struct run *rest = take_plain(44);
    struct run *tight = take_plain(60);  // the second superslab: 4 pages free
    assert_int_not_equal(align_down(tight->start, SUPERSLAB_BYTES),
                         align_down(roomy->start, SUPERSLAB_BYTES));
    arena_give(rest);  // the first one: 44 pages free
    assert_int_equal(take_plain(4)->start, tight->start + 60 * PAGE_BYTES);
    assert_int_equal(take_plain(4)->start, roomy->start + 20 * PAGE_BYTES);
}

static void test_best_fit_in_a_superslab(void **state) {
    (void)state;
    start();
    static const unsigned pages[] = {9, 1, 4, 1, 6, 1, 4, 1, 37};
    struct run *parts[ARRAY_COUNT(pages)];
    uintptr_t starts[ARRAY_COUNT(pages)];
    for (size_t i = 0; i < ARRAY_COUNT(pages); i++) {
        parts[i] = take_plain(pages[i]);
        starts[i] = parts[i]->start;
    }
    for (size_t i = 0; i < ARRAY_COUNT(pages); i += 2) {
        arena_give(parts[i]);
    }
    assert_int_equal(take_plain(5)->start, starts[4]);
    assert_int_equal(take_plain(3)->start, starts[2]);
    assert_int_equal(take_plain(4)->start, starts[6]);
    // What is left: a page each behind the first two, and 9 and 37.
    assert_int_equal(take_plain(1)->start, starts[2] + 3 * PAGE_BYTES);
    assert_int_equal(take_plain(1)->start, starts[4] + 5 * PAGE_BYTES);
    assert_int_equal(take_plain(2)->start, starts[0]);
    // At a multiple of 8 pages the shorter stretch, of 7, has no place.
    uint64_t used;
    struct run *aligned = arena_take(2, 8 * PAGE_BYTES, false, &used);
    assert_true(aligned->start > starts[8]);
    assert_int_equal(aligned->start % (8 * PAGE_BYTES), 0);
}

// The stretch of the superslab that comes first begins at an odd page; the other's, as long, does not.
static void test_aligned_place_in_another_superslab(void **state) {
    (void)state;
    start();
    (void)take_plain(1);
    struct run *odd = take_plain(2);
    (void)take_plain(61);
    struct run *even = take_plain(2);
    (void)take_plain(62);
    const uintptr_t even_start = even->start;
    arena_give(even);
    arena_give(odd);
    uint64_t used;
    assert_int_equal(arena_take(2, 2 * PAGE_BYTES, false, &used)->start, even_start);
}

static void test_memory_that_is_still_there_first(void **state) {
    (void)state;
    start();
    struct run *low = take_plain(4);
    struct run *middle = take_plain(4);
    struct run *high = take_plain(4);
    const uintptr_t low_start = low->start;
    arena_give(low);
    arena_purge(os_clock_ms(), ARENA_PURGE_ALL);  // the low place is clean now
    arena_give(high);                             // the high one still has its memory
    uint64_t used = 0;
    struct run *again = arena_take(2, PAGE_BYTES, false, &used);
    assert_int_equal(again->start, high->start);
    assert_true(used != 0);
    again = arena_take(4, PAGE_BYTES, false, &used);
    assert_int_equal(again->start, low_start);
    assert_true(used == 0);
    arena_give(middle);
}

static void test_find_knows_nothing_outside(void **state) {
    (void)state;
    start();
    assert_null(arena_find(0));
    assert_null(arena_find((uintptr_t)&runs));
    struct run *run = take_plain(4);
    assert_null(arena_find(run->start - 1));
    assert_null(arena_find(run->start + SUPERSLAB_BYTES));
    arena_give(run);
    assert_null(arena_find(run->start));
}

// ---- Superslabs come and go ----

static size_t mapped_bytes(void) {
    struct arena_totals totals;
    arena_totals(&totals);
    return totals.mapped_bytes;
}

static void test_one_spare_superslab_is_kept(void **state) {
    (void)state;
    start();
    for (int i = 0; i < 5; i++) {
        take(i, SUPERSLAB_PAGES, PAGE_BYTES, false);
    }
    assert_int_equal(mapped_bytes(), 5 * SUPERSLAB_BYTES);
    const size_t before = fake_os_bytes(FAKE_WRITABLE);
    for (int i = 0; i < 5; i++) {
        give(i);
    }
    assert_int_equal(arena_purge(os_clock_ms(), ARENA_PURGE_ALL), 5 * SUPERSLAB_BYTES);
    check();
    assert_int_equal(mapped_bytes(), SUPERSLAB_BYTES);
    assert_int_equal(before - fake_os_bytes(FAKE_WRITABLE), 4 * SUPERSLAB_BYTES);
    // Hovering at its border maps and unmaps nothing.
    const uint64_t maps = fake_os_calls(OS_MMAP);
    const uint64_t unmaps = fake_os_calls(OS_MUNMAP);
    for (int i = 0; i < 10; i++) {
        take(0, SUPERSLAB_PAGES, PAGE_BYTES, false);
        give(0);
        arena_purge(os_clock_ms(), ARENA_PURGE_ALL);
    }
    assert_int_equal(fake_os_calls(OS_MMAP), maps);
    assert_int_equal(fake_os_calls(OS_MUNMAP), unmaps);
    // Nor are there new descriptors for those that come and go.
    const uint64_t bytes = metadata_bytes();
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 5; i++) {
            take(i, SUPERSLAB_PAGES, PAGE_BYTES, false);
        }
        for (int i = 0; i < 5; i++) {
            give(i);
        }
        arena_purge(os_clock_ms(), ARENA_PURGE_ALL);
    }
    assert_int_equal(fake_os_calls(OS_MUNMAP), unmaps + 10 * 4);
    assert_int_equal(metadata_bytes(), bytes);
    struct arena_totals totals;
    arena_totals(&totals);
    assert_int_equal(totals.mapped_bytes_max, 5 * SUPERSLAB_BYTES);
}

static void test_descriptors_are_used_again(void **state) {
    (void)state;
    start();
    uint64_t maps = 0;
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 8; i++) {
            take(i, SUPERSLAB_PAGES, PAGE_BYTES, false);
        }
        for (int i = 0; i < 8; i++) {
            give(i);
        }
        arena_purge(os_clock_ms(), ARENA_PURGE_ALL);
        check();
        if (round == 0) {
            maps = fake_os_calls(OS_MMAP);
        }
    }
    // Seven superslabs a round, and no new descriptors.
    assert_int_equal(fake_os_calls(OS_MMAP) - maps, 19 * 7);
}

// One large block after the other, each where none began: they pass the same descriptors on.
static void test_descriptors_of_large_runs_move(void **state) {
    (void)state;
    start();
    take(0, 1, PAGE_BYTES, false);
    take(1, 1, PAGE_BYTES, false);
    give(0);
    give(1);
    const uint64_t bytes = metadata_bytes();
    for (unsigned pages = 2; pages < SUPERSLAB_PAGES; pages++) {
        take(0, pages, PAGE_BYTES, false);
        take(1, 1, PAGE_BYTES, false);
        assert_int_equal(runs[1].run->start - runs[0].run->start, pages * PAGE_BYTES);
        give(0);
        give(1);
        check();
    }
    assert_int_equal(metadata_bytes(), bytes);
}

static void test_descriptors_of_slabs_stay(void **state) {
    (void)state;
    start();
    take(0, 1, PAGE_BYTES, false);
    struct run *slab = runs[0].run;
    // As slab_create() leaves it.
    slab->remote_bits = &slab->one_word_remote;
    const struct superslab *superslab = page_map_superslab(slab->start);
    give(0);
    take(0, 2, PAGE_BYTES, false);
    assert_ptr_equal(runs[0].run, slab);
    take(1, 1, PAGE_BYTES, false);
    assert_ptr_not_equal(runs[1].run, slab);
    give(0);
    take(2, 62, PAGE_BYTES, false);
    assert_ptr_not_equal(runs[2].run, slab);
    assert_ptr_equal(superslab_run(superslab, 0), slab);
    check();
}

static void test_refused_unmap_is_tried_again(void **state) {
    (void)state;
    start();
    for (int i = 0; i < 4; i++) {
        take(i, SUPERSLAB_PAGES, PAGE_BYTES, false);
    }
    for (int i = 0; i < 4; i++) {
        give(i);
    }
    fake_os_fail(OS_MUNMAP, 1, true);
    arena_purge(os_clock_ms(), ARENA_PURGE_ALL);
    check();
    assert_int_equal(mapped_bytes(), 4 * SUPERSLAB_BYTES);
    take(0, SUPERSLAB_PAGES, PAGE_BYTES, false);
    give(0);
    fake_os_mend();
    arena_purge(os_clock_ms(), ARENA_PURGE_ALL);
    check();
    assert_int_equal(mapped_bytes(), SUPERSLAB_BYTES);
}

// Each call of mapping a superslab fails; the next try succeeds and nothing stays behind.
static void check_refused_map(enum os_call kind, uint64_t nth) {
    uint64_t used;
    const size_t before = fake_os_bytes(FAKE_WRITABLE);
    fake_os_fail(kind, nth, false);
    assert_null(arena_take(1, PAGE_BYTES, false, &used));
    assert_int_equal(fake_os_refused(), 1);
    assert_int_equal(mapped_bytes(), 0);
    assert_int_equal(arena_check(), 0);
    assert_true(fake_os_bytes(FAKE_WRITABLE) - before <= 256 * KIB);
    take(0, 1, PAGE_BYTES, false);
    check();
    give(0);
}

static void test_no_memory_for_the_descriptor(void **state) {
    (void)state;
    start();
    check_refused_map(OS_MMAP, 1);
}

static void test_no_memory_for_the_superslab(void **state) {
    (void)state;
    start();
    check_refused_map(OS_MMAP, 2);
}

static void test_no_memory_for_the_page_map(void **state) {
    (void)state;
    start();
    check_refused_map(OS_MPROTECT, 1);
}

// ---- Guards ----

static void test_guard_comes_and_goes(void **state) {
    (void)state;
    start();
    take(0, 3, PAGE_BYTES, true);
    char *guard = (char *)runs[0].run->start + 3 * PAGE_BYTES;
    assert_int_equal(fake_os_state(guard - 1), FAKE_WRITABLE);
    assert_int_equal(fake_os_state(guard), FAKE_INACCESSIBLE);
    assert_int_equal(fake_os_state(guard + PAGE_BYTES), FAKE_WRITABLE);
    extend(0, 1);  // a guarded run cannot grow
    shorten(0, 1);
    give(0);
    check();
    assert_int_equal(fake_os_state(guard), FAKE_WRITABLE);
}

// What a page held that becomes a guard would stay in memory, where no purge comes.
static void test_guard_holds_no_memory(void **state) {
    (void)state;
    start();
    take(0, 8, PAGE_BYTES, false);
    give(0);
    const uint64_t before = fake_os_purged_bytes();
    take(0, 3, PAGE_BYTES, true);  // in what is still there, and so is the page behind it
    assert_int_equal(fake_os_purged_bytes() - before, PAGE_BYTES);
    take(1, 40, PAGE_BYTES, true);  // behind this one nobody was
    assert_int_equal(fake_os_purged_bytes() - before, PAGE_BYTES);
    give(1);
    give(0);
    check();
}

// Each takes two mappings, of which a process has a bounded number.
static void test_guards_are_bounded(void **state) {
    (void)state;
    page_map_init();
    static struct run *guarded[ARENA_GUARDS_MOST];
    uint64_t used;
    for (unsigned i = 0; i < ARENA_GUARDS_MOST; i++) {
        guarded[i] = arena_take(31, PAGE_BYTES, true, &used);
        assert_true(guarded[i]->guarded);
    }
    struct run *beyond = arena_take(31, PAGE_BYTES, true, &used);
    assert_false(beyond->guarded);
    assert_int_equal(arena_check(), 0);
    arena_give(guarded[7]);
    guarded[7] = arena_take(31, PAGE_BYTES, true, &used);
    assert_true(guarded[7]->guarded);
    // One that cannot be lifted counts until it is, or its superslab goes.
    fake_os_fail(OS_MPROTECT, 1, true);
    arena_give(guarded[8]);
    assert_false(arena_take(30, PAGE_BYTES, true, &used)->guarded);
    fake_os_mend();
    arena_purge(os_clock_ms(), ARENA_PURGE_ALL);
    assert_true(arena_take(30, PAGE_BYTES, true, &used)->guarded);
    arena_give(beyond);
    assert_int_equal(arena_check(), 0);
}

static void test_refused_guard_is_only_weaker(void **state) {
    (void)state;
    start();
    fake_os_fail(OS_MPROTECT, 2, false);  // the first one opens the page map
    uint64_t used;
    struct run *run = arena_take(3, PAGE_BYTES, true, &used);
    assert_int_equal(fake_os_refused(), 1);
    assert_int_equal(fake_os_state((char *)run->start + 3 * PAGE_BYTES), FAKE_WRITABLE);
    arena_give(run);
    assert_int_equal(arena_check(), 0);
    assert_int_equal(dirty_bytes(), 4 * PAGE_BYTES);
}

static void test_guard_that_cannot_be_lifted_is_kept_away(void **state) {
    (void)state;
    start();
    take(0, 3, PAGE_BYTES, true);
    const uintptr_t guard = runs[0].run->start + 3 * PAGE_BYTES;
    fake_os_fail(OS_MPROTECT, 1, true);
    give(0);
    *owner_at(guard) = STUCK_PAGE;
    check();
    arena_purge(os_clock_ms(), ARENA_PURGE_ALL);
    check();
    assert_true(arena_purge_due() != UINT64_MAX);
    // Nobody is given the page.
    for (int i = 0; i < 63; i++) {
        take(i, 1, PAGE_BYTES, false);
        assert_int_not_equal(runs[i].run->start, guard);
    }
    check();
    assert_int_equal(mapped_bytes(), SUPERSLAB_BYTES);
    // Until the system gives in.
    fake_os_mend();
    arena_purge(os_clock_ms(), ARENA_PURGE_ALL);
    *owner_at(guard) = FREE_PAGE;
    check();
    take(63, 1, PAGE_BYTES, false);
    assert_int_equal(runs[63].run->start, guard);
    check();
}

// ---- Threads ----

enum { THREAD_COUNT = 4, THREAD_RUNS = 24, THREAD_STEPS = 1500 };

static unsigned take_and_give(uint64_t random_state) {
    struct run *mine[THREAD_RUNS] = {NULL};
    for (unsigned n = 0; n < THREAD_STEPS; n++) {
        struct run **place = &mine[random_next(&random_state) % THREAD_RUNS];
        const unsigned page_count = 1 + (unsigned)(random_next(&random_state) % 20);
        if (*place == NULL) {
            uint64_t used;
            *place = arena_take(page_count, PAGE_BYTES, n % 8 == 0, &used);
            require(*place != NULL);
            for (unsigned page = 0; page < page_count; page++) {
                uintptr_t *first = (uintptr_t *)((*place)->start + page * PAGE_BYTES);
                require((used & bit(page)) != 0 || *first == 0);
                *first = (uintptr_t)*place;
            }
        } else {
            for (unsigned page = 0; page < (*place)->page_count; page++) {
                require(*(uintptr_t *)((*place)->start + page * PAGE_BYTES) == (uintptr_t)*place);
            }
            arena_give(*place);
            *place = NULL;
        }
        if (n % 20 == 0) {
            arena_purge(n, n % 40 == 0 ? ARENA_PURGE_ALL : 8 * MIB);
        }
    }
    for (unsigned i = 0; i < THREAD_RUNS; i++) {
        if (mine[i] != NULL) {
            arena_give(mine[i]);
        }
    }
    return 0;
}

static void test_threads(void **state) {
    (void)state;
    start();
    struct team team;
    team_start(&team, THREAD_COUNT, test_seed(), take_and_give);
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(arena_check(), 0);
    }
    team_join(&team);
    arena_purge(os_clock_ms(), ARENA_PURGE_ALL);
    assert_int_equal(arena_check(), 0);
    assert_int_equal(mapped_bytes(), SUPERSLAB_BYTES);
    assert_int_equal(fake_os_bytes(FAKE_INACCESSIBLE), 0);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_operations),
        cmocka_unit_test(test_random_operations_without_delay),
        cmocka_unit_test(test_random_operations_fallback_map),
        cmocka_unit_test(test_random_operations_large_machine_pages),
        cmocka_unit_test(test_every_length_at_every_alignment),
        cmocka_unit_test(test_lowest_address_first),
        cmocka_unit_test(test_neighbouring_free_runs_are_one),
        cmocka_unit_test(test_best_fit_over_superslabs),
        cmocka_unit_test(test_best_fit_in_a_superslab),
        cmocka_unit_test(test_aligned_place_in_another_superslab),
        cmocka_unit_test(test_memory_that_is_still_there_first),
        cmocka_unit_test(test_find_knows_nothing_outside),
        cmocka_unit_test(test_one_spare_superslab_is_kept),
        cmocka_unit_test(test_descriptors_are_used_again),
        cmocka_unit_test(test_descriptors_of_large_runs_move),
        cmocka_unit_test(test_descriptors_of_slabs_stay),
        cmocka_unit_test(test_refused_unmap_is_tried_again),
        cmocka_unit_test(test_no_memory_for_the_descriptor),
        cmocka_unit_test(test_no_memory_for_the_superslab),
        cmocka_unit_test(test_no_memory_for_the_page_map),
        cmocka_unit_test(test_guard_comes_and_goes),
        cmocka_unit_test(test_guard_holds_no_memory),
        cmocka_unit_test(test_guards_are_bounded),
        cmocka_unit_test(test_refused_guard_is_only_weaker),
        cmocka_unit_test(test_guard_that_cannot_be_lifted_is_kept_away),
        cmocka_unit_test(test_threads),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
