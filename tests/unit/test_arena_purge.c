// Free pages of the arena that go back to the system: when, in how many calls, and what a refusal changes.
#include "isolate.h"

#include <string.h>

#include "config/counters.h"
#include "config/options.h"
#include "fake_os.h"
#include "plain_runs.h"
#include "space/arena.h"
#include "space/arena_pages.h"
#include "space/arena_purge.h"
#include "space/page_map.h"
#include "space/purge_pages.h"
#include "space/space_hooks.h"
#include "team.h"

static void test_purge_by_the_clock(void **state) {
    (void)state;
    page_map_init();
    options.purge_delay_ms = 500;
    struct run *first = take_plain(4);
    struct run *second = take_plain(4);
    take_plain(1);
    assert_int_equal(arena_purge_due(), UINT64_MAX);
    arena_give(first);
    assert_int_equal(arena_purge_due(), 0);
    uint64_t now_ms = 10000;
    assert_int_equal(arena_purge(now_ms, 8 * MIB), 0);  // starts the clock
    assert_int_equal(arena_purge_due(), 10500);
    arena_give(second);
    now_ms = 10500;
    assert_int_equal(arena_purge(now_ms, 8 * MIB), 4 * PAGE_BYTES);
    assert_int_equal(fake_os_purged_bytes(), 4 * PAGE_BYTES);
    assert_int_equal(dirty_bytes(), 4 * PAGE_BYTES);
    assert_int_equal(arena_purge_due(), 11000);
    now_ms = 11000;
    assert_int_equal(arena_purge(now_ms, 8 * MIB), 4 * PAGE_BYTES);
    assert_int_equal(dirty_bytes(), 0);
    assert_int_equal(arena_purge_due(), UINT64_MAX);
    assert_int_equal(arena_check(), 0);
}

static struct purge_delay *asked_of;
static unsigned asked_count;
static uint32_t answer_ms;  // 0: as it was

static void note_delay(struct purge_delay *delay, uint64_t most_ms) {
    assert_int_equal(most_ms, 1600);
    asked_of = delay;
    asked_count++;
    delay->ms = answer_ms != 0 ? answer_ms : delay->ms;
}

// A superslab with a run of 8 pages that was given back, at a time when a round of full age has just begun.
static void give_back(int huge_pages) {
    page_map_init();
    options.purge_delay_ms = 1600;
    options.huge_pages = huge_pages;
    atomic_store_relaxed(&space_hooks.runs_delay, note_delay);
    struct run *run = take_plain(8);
    take_plain(1);
    arena_give(run);
    assert_int_equal(arena_purge(10000, 8 * MIB), 0);
}

static void start_early(void) {
    give_back(huge_pages_never);
    assert_int_equal(arena_purge_due(), 10100);
    assert_int_equal(asked_count, 1);
}

static void test_early_rounds(void **state) {
    (void)state;
    start_early();
    assert_int_equal(arena_purge(10099, 8 * MIB), 0);
    assert_int_equal(dirty_bytes(), 8 * PAGE_BYTES);
    assert_int_equal(arena_purge(10100, 8 * MIB), 8 * PAGE_BYTES);
    assert_int_equal(asked_count, 2);
    assert_int_equal(asked_of->early_bytes, 8 * PAGE_BYTES);
    assert_int_equal(asked_of->refault_bytes, 0);
    // The learned delay is the one that holds, the option's at most.
    asked_of->ms = 400;
    arena_give(take_plain(2));
    assert_int_equal(asked_of->refault_bytes, 2 * PAGE_BYTES);
    assert_int_equal(arena_purge(10300, 8 * MIB), 0);
    assert_int_equal(arena_purge_due(), 10700);
    asked_of->ms = 4000;
    assert_int_equal(arena_purge(10700, 8 * MIB), 2 * PAGE_BYTES);
    assert_int_equal(arena_check(), 0);
}

// What a round would give back goes by the delay that the learner decides when it begins.
static void test_a_round_that_is_too_early_is_not_held(void **state) {
    (void)state;
    start_early();
    answer_ms = 400;
    assert_int_equal(arena_purge(10100, 8 * MIB), 0);
    assert_int_equal(arena_purge_due(), 10500);
    answer_ms = 1600;
    assert_int_equal(arena_purge(10500, 8 * MIB), 0);
    assert_int_equal(arena_purge_due(), 12100);
    assert_int_equal(dirty_bytes(), 8 * PAGE_BYTES);
    assert_int_equal(arena_purge(12100, 8 * MIB), 8 * PAGE_BYTES);
    assert_int_equal(asked_count, 4);
    assert_int_equal(asked_of->early_bytes, 0);
    assert_int_equal(arena_check(), 0);
}

// What a run grows by costs as much as another run.
static void test_what_a_run_grows_by_is_wanted_again(void **state) {
    (void)state;
    start_early();
    struct run *run = take_plain(1);
    fake_os_pass_ms(9100);
    assert_int_equal(arena_purge(10100, 8 * MIB), 7 * PAGE_BYTES);
    assert_true(arena_extend(run, 4));
    assert_int_equal(asked_of->refault_bytes, 3 * PAGE_BYTES);
    assert_int_equal(arena_check(), 0);
}

static void test_what_is_wanted_late_was_given_back_rightly(void **state) {
    (void)state;
    start_early();
    fake_os_pass_ms(9100);
    assert_int_equal(arena_purge(10100, 8 * MIB), 8 * PAGE_BYTES);
    fake_os_pass_ms(1601);
    take_plain(2);
    assert_int_equal(asked_of->refault_bytes, 0);
    assert_int_equal(asked_of->early_bytes, 0);
}

static void test_clock_that_goes_back(void **state) {
    (void)state;
    start_early();
    fake_os_pass_ms(9100);
    assert_int_equal(arena_purge(10100, 8 * MIB), 8 * PAGE_BYTES);
    fake_os_pass_ms(-UINT64_C(5000));
    take_plain(2);
    assert_int_equal(asked_of->refault_bytes, 0);
    assert_int_equal(asked_of->early_bytes, 0);
}

static void test_no_early_rounds_where_nothing_may_come_back(void **state) {
    (void)state;
    options.refault_permille = 0;
    give_back(huge_pages_never);
    assert_int_equal(arena_purge_due(), 11600);
}

static void test_early_rounds_leave_huge_pages_whole(void **state) {
    (void)state;
    give_back(huge_pages_always);
    assert_int_equal(arena_purge(10100, 8 * MIB), 0);
    assert_int_equal(dirty_bytes(), 8 * PAGE_BYTES);
    assert_int_equal(arena_purge(11600, 8 * MIB), 8 * PAGE_BYTES);
}

static void test_shorter_delay_holds_at_once(void **state) {
    (void)state;
    page_map_init();
    options.purge_delay_ms = 3600000;
    struct run *run = take_plain(4);
    take_plain(1);
    arena_give(run);
    assert_int_equal(arena_purge(10000, 8 * MIB), 0);  // starts the clock
    assert_false(arena_purge_is_due(10500));
    options.purge_delay_ms = 500;
    assert_true(arena_purge_is_due(10500));
    assert_int_equal(arena_purge(10500, 8 * MIB), 4 * PAGE_BYTES);
    assert_false(arena_purge_is_due(3700000));
}

// Rounds are counted for as long as the process lives.
static void test_purges_after_very_many_rounds(void **state) {
    (void)state;
    page_map_init();
    options.purge_delay_ms = 500;
    arena_state.purge_round = UINT64_C(0x80000001);
    struct run *run = take_plain(4);
    take_plain(1);
    arena_give(run);
    assert_int_equal(arena_purge(10000, ARENA_PURGE_ALL), 4 * PAGE_BYTES);
}

static void test_purge_in_few_calls(void **state) {
    (void)state;
    page_map_init();
    struct run *parts[16];
    for (unsigned i = 0; i < 16; i++) {
        parts[i] = take_plain(4);
    }
    for (unsigned i = 0; i < 16; i++) {
        if (i != 7) {
            arena_give(parts[i]);
        }
    }
    const uint64_t calls = fake_os_calls(OS_MADVISE);
    assert_int_equal(arena_purge(os_clock_ms(), ARENA_PURGE_ALL), 60 * PAGE_BYTES);
    assert_int_equal(fake_os_calls(OS_MADVISE) - calls, 2);
}

static void test_no_delay_purges_at_once(void **state) {
    (void)state;
    page_map_init();
    options.purge_delay_ms = 0;
    struct run *first = take_plain(4);
    struct run *second = take_plain(4);
    arena_give(first);
    assert_int_equal(dirty_bytes(), 0);
    arena_shorten(second, 1);
    assert_int_equal(dirty_bytes(), 0);
    assert_int_equal(fake_os_purged_bytes(), 7 * PAGE_BYTES);
}

static void test_refused_purge_is_tried_again(void **state) {
    (void)state;
    page_map_init();
    struct run *run = take_plain(8);
    memset((void *)run->start, 1, 8 * PAGE_BYTES);
    take_plain(1);
    arena_give(run);
    fake_os_fail(OS_MADVISE, 1, true);
    assert_int_equal(arena_purge(os_clock_ms(), ARENA_PURGE_ALL), 0);
    fake_os_mend();
    assert_int_equal(arena_check(), 0);
    assert_int_equal(dirty_bytes(), 8 * PAGE_BYTES);
    assert_true(arena_purge_due() != UINT64_MAX);
    uint64_t used = 0;
    run = arena_take(8, PAGE_BYTES, false, &used);
    assert_true(used != 0);
    arena_give(run);
    assert_int_equal(arena_purge(os_clock_ms(), ARENA_PURGE_ALL), 8 * PAGE_BYTES);
    assert_int_equal(arena_check(), 0);
}

// A stretch of 40 pages, of which one is locked.
static void test_a_locked_page_stays_alone(void **state) {
    (void)state;
    page_map_init();
    struct run *run = take_plain(40);
    char *start = (char *)run->start;
    memset(start, 1, 40 * PAGE_BYTES);
    take_plain(1);
    arena_give(run);
    const uint64_t calls = fake_os_calls(OS_MADVISE);
    fake_os_lock(start + 3 * PAGE_BYTES + 4096, 4096);
    assert_int_equal(arena_purge(os_clock_ms(), ARENA_PURGE_ALL), 39 * PAGE_BYTES);
    assert_int_equal(fake_os_calls(OS_MADVISE) - calls, 41);
    assert_int_equal(dirty_bytes(), PAGE_BYTES);
    assert_int_equal(start[4 * PAGE_BYTES], 0);
    assert_int_equal(start[3 * PAGE_BYTES + 4096], 1);
    assert_int_equal(arena_check(), 0);
    // The page alone is tried again, once a round.
    assert_int_equal(arena_purge(os_clock_ms(), ARENA_PURGE_ALL), 0);
    assert_int_equal(fake_os_calls(OS_MADVISE) - calls, 42);
    fake_os_lock(NULL, 0);
    assert_int_equal(arena_purge(os_clock_ms(), ARENA_PURGE_ALL), PAGE_BYTES);
    assert_int_equal(dirty_bytes(), 0);
}

// Where all is locked, or the call forbidden, it is not made for each page.
static void test_where_all_is_refused_few_calls_are_made(void **state) {
    (void)state;
    page_map_init();
    struct run *run = take_plain(40);
    take_plain(1);
    arena_give(run);
    const uint64_t calls = fake_os_calls(OS_MADVISE);
    fake_os_fail(OS_MADVISE, 1, true);
    assert_int_equal(arena_purge(os_clock_ms(), ARENA_PURGE_ALL), 0);
    fake_os_mend();
    assert_in_range(fake_os_calls(OS_MADVISE) - calls, 2, 9);
    assert_int_equal(dirty_bytes(), 40 * PAGE_BYTES);
}

// A locked block at the start of a stretch, freed as it was: the rest goes.
static void test_behind_many_locked_pages_the_rest_goes(void **state) {
    (void)state;
    page_map_init();
    struct run *run = take_plain(40);
    take_plain(1);
    arena_give(run);
    fake_os_lock((void *)run->start, 12 * PAGE_BYTES);
    assert_int_equal(arena_purge(os_clock_ms(), ARENA_PURGE_ALL), 28 * PAGE_BYTES);
    assert_int_equal(dirty_bytes(), 12 * PAGE_BYTES);
    assert_int_equal(arena_check(), 0);
    fake_os_lock(NULL, 0);
}

// A stretch that is locked as a whole does not keep another one, with one locked page.
static void test_beside_a_locked_stretch_others_go(void **state) {
    (void)state;
    page_map_init();
    struct run *locked = take_plain(16);
    take_plain(1);
    struct run *run = take_plain(16);
    take_plain(1);
    char *start = (char *)run->start;
    arena_give(locked);
    fake_os_lock((void *)locked->start, 16 * PAGE_BYTES);
    assert_int_equal(arena_purge(os_clock_ms(), ARENA_PURGE_ALL), 0);
    arena_give(run);
    fake_os_lock((void *)locked->start, (size_t)(start + PAGE_BYTES - (char *)locked->start));
    for (unsigned i = 0; i < 32; i++) {
        arena_purge(os_clock_ms(), ARENA_PURGE_ALL);
    }
    assert_int_equal(dirty_bytes(), 17 * PAGE_BYTES);
    assert_int_equal(arena_check(), 0);
    fake_os_lock(NULL, 0);
}

// Another thread's tick, in the middle of a purge of everything: once.
static bool ticked;

static void tick_once(enum os_call call, void *start, size_t bytes) {
    (void)start, (void)bytes;
    if (call == OS_MADVISE && !ticked) {
        ticked = true;
        arena_purge(os_clock_ms(), 8 * MIB);
    }
}

enum { WHOLE_COUNT = 8 };

static void make_dirty(unsigned count) {
    struct run *whole[WHOLE_COUNT];
    for (unsigned i = 0; i < count; i++) {
        whole[i] = take_plain(SUPERSLAB_PAGES);
    }
    for (unsigned i = 0; i < count; i++) {
        arena_give(whole[i]);
    }
}

static uint64_t mapped_bytes(void) {
    struct arena_totals totals;
    arena_totals(&totals);
    return totals.mapped_bytes;
}

static void test_a_tick_does_not_end_a_purge_of_everything(void **state) {
    (void)state;
    page_map_init();
    options.excess_bytes = UINT64_C(1) << 30;
    make_dirty(WHOLE_COUNT);
    assert_int_equal(dirty_bytes(), WHOLE_COUNT * SUPERSLAB_BYTES);
    fake_os_watch(tick_once);
    assert_int_equal(arena_purge(os_clock_ms(), ARENA_PURGE_ALL), WHOLE_COUNT * SUPERSLAB_BYTES);
    fake_os_watch(NULL);
    assert_true(ticked);
    assert_int_equal(dirty_bytes(), 0);
    assert_int_equal(arena_check(), 0);
}

// What others free while a purge runs.
static void free_more(enum os_call call, void *start, size_t bytes) {
    (void)start, (void)bytes;
    if (call == OS_MADVISE) {
        options.excess_bytes = UINT64_C(1) << 30;
        make_dirty(3);
        options.excess_bytes = 8 * MIB;
    }
}

static void test_only_what_the_system_refuses_may_stay(void **state) {
    (void)state;
    page_map_init();
    options.excess_bytes = 8 * MIB;
    fake_os_watch(free_more);
    make_dirty(WHOLE_COUNT);
    fake_os_watch(NULL);
    assert_true(dirty_bytes() > 8 * MIB);
    assert_int_equal(arena_state.excess.accepted_bytes, 0);
    assert_int_equal(arena_check(), 0);
}

// As in a signal handler that forks while its thread gives back, and goes on in the child.
static char *taken;

static void fork_and_take(enum os_call call, void *start, size_t bytes) {
    (void)start, (void)bytes;
    if (call == OS_MADVISE) {
        fake_os_watch(NULL);
        arena_fork_lock();
        arena_fork_child();
        arena_fork_unlock();
        assert_int_equal(arena_check(), 0);
        taken = (char *)take_plain(8)->start;
        memset(taken, 7, 8 * PAGE_BYTES);
    }
}

static void test_what_a_fork_in_a_purge_takes_stays(void **state) {
    (void)state;
    page_map_init();
    struct run *run = take_plain(8);
    struct run *other = take_plain(8);
    take_plain(SUPERSLAB_PAGES - 16);
    // However many purges there were: none of them is under way.
    for (unsigned i = 0; i < 100; i++) {
        arena_give(other);
        assert_int_equal(arena_purge(0, ARENA_PURGE_ALL), 8 * PAGE_BYTES);
        other = take_plain(8);
    }
    arena_give(run);
    fake_os_watch(fork_and_take);
    assert_int_equal(arena_purge(0, ARENA_PURGE_ALL), 8 * PAGE_BYTES);
    for (size_t i = 0; i < 8 * PAGE_BYTES; i++) {
        assert_int_equal(taken[i], 7);
    }
    assert_int_equal(dirty_bytes(), 0);
    assert_int_equal(arena_check(), 0);
    // Noted no more.
    arena_fork_child();
    assert_int_equal(arena_check(), 0);
}

static unsigned under_the_lock, without_it;

static void see_the_lock(enum os_call call, void *start, size_t bytes) {
    (void)call, (void)start, (void)bytes;
    *(lock_is_mine(&arena_state.lock) ? &under_the_lock : &without_it) += 1;
}

// Where so many give back at once that this one is not noted it keeps the lock: there is no child of a fork in its midst that would take
// the pages.
static void test_what_is_not_noted_goes_under_the_lock(void **state) {
    (void)state;
    page_map_init();
    struct run *run = take_plain(8);
    take_plain(SUPERSLAB_PAGES - 8);
    struct purge *others[100];
    size_t noted = 0;
    while ((others[noted] = purge_begin(NULL, 1)) != NULL) {
        noted++;
    }
    arena_give(run);
    fake_os_watch(see_the_lock);
    assert_int_equal(arena_purge(0, ARENA_PURGE_ALL), 8 * PAGE_BYTES);
    assert_int_equal(under_the_lock, 1);
    assert_int_equal(without_it, 0);
    run = take_plain(8);
    purge_end(others[noted - 1]);
    arena_give(run);
    assert_int_equal(arena_purge(0, ARENA_PURGE_ALL), 8 * PAGE_BYTES);
    assert_int_equal(under_the_lock, 1);
    assert_int_equal(without_it, 1);
    fake_os_watch(NULL);
    assert_int_equal(arena_check(), 0);
}

// A stretch within a slab, in pieces of two pages of the machine, the last of one. All is counted, the bytes and the calls.
static void test_a_stretch_goes_but_for_a_locked_piece(void **state) {
    (void)state;
    page_map_init();
    const size_t page_bytes = os_page_bytes();
    const size_t bytes = 127 * page_bytes;
    char *start = (char *)take_plain(8)->start;
    for (size_t locked = 0; locked < 127; locked += 63) {
        memset(start, 7, bytes);
        char *place = start + locked * page_bytes;
        fake_os_lock(place, page_bytes);
        unsigned calls = 0;
        const size_t left_bytes = locked == 126 ? page_bytes : 2 * page_bytes;
        assert_int_equal(purge_part(start, bytes, &calls), bytes - left_bytes);
        assert_int_equal(calls, 1 + 64);
        assert_int_equal(*place, 7);
        for (size_t page = 0; page < 127; page++) {
            assert_true(page / 2 == locked / 2 || start[page * page_bytes] == 0);
        }
    }
}

static unsigned begin_purges(uint64_t seed) {
    (void)seed;
    static const struct superslab superslab;
    unsigned begun = 0;
    while (purge_begin(&superslab, 1) != NULL) {
        begun++;
    }
    return begun;
}

// Those of threads that are gone leave room for the child's own, in which it may fork again.
static void test_purges_of_lost_threads_end_with_a_fork(void **state) {
    (void)state;
    struct team team;
    team_start(&team, 1, 0, begin_purges);
    const unsigned begun = team_join(&team);
    assert_int_not_equal(begun, 0);
    purge_fork_child();
    assert_int_equal(begin_purges(0), begun);
    purge_fork_child();
    assert_int_equal(begin_purges(0), 0);
}

// Of the others a child of a fork takes every page, the first too.
static void test_only_pages_under_way_are_own(void **state) {
    (void)state;
    static const struct superslab superslab, other;
    struct purge *purge = purge_begin(&superslab, 2);
    assert_int_equal(purge_own_pages(&superslab), 2);
    assert_int_equal(purge_own_pages(&other), 0);
    purge_end(purge);
    assert_int_equal(purge_own_pages(&superslab), 0);
}

static uint64_t purged_bytes(void) {
    return atomic_load_relaxed(&process_counters.value[COUNTER_purged_bytes]);
}

static void test_what_goes_without_a_delay_is_counted(void **state) {
    (void)state;
    page_map_init();
    options.purge_delay_ms = 0;
    const uint64_t before = purged_bytes();
    arena_give(take_plain(4));
    assert_int_equal(purged_bytes() - before, 4 * PAGE_BYTES);
}

// Locked in memory: the system clears nothing, but unmaps.
static void test_wholly_free_superslabs_go_where_nothing_is_cleared(void **state) {
    (void)state;
    page_map_init();
    options.excess_bytes = UINT64_C(1) << 30;
    make_dirty(WHOLE_COUNT);
    fake_os_fail(OS_MADVISE, 1, true);
    assert_int_equal(arena_purge(os_clock_ms(), ARENA_PURGE_ALL),
                     (WHOLE_COUNT - 1) * SUPERSLAB_BYTES);
    assert_int_equal(mapped_bytes(), SUPERSLAB_BYTES);
    assert_int_equal(dirty_bytes(), SUPERSLAB_BYTES);
    assert_int_equal(arena_check(), 0);
    // The same with those that have aged, and where the system does not unmap either.
    make_dirty(WHOLE_COUNT);
    fake_os_fail(FAKE_ANY, 1, true);
    assert_int_equal(arena_purge(os_clock_ms(), ARENA_PURGE_ALL), 0);
    assert_int_equal(dirty_bytes(), WHOLE_COUNT * SUPERSLAB_BYTES);
    assert_int_equal(arena_check(), 0);
    fake_os_fail(OS_MADVISE, 1, true);
    for (unsigned i = 0; i < 3 + WHOLE_COUNT / 2; i++) {  // 8 MiB in one call
        arena_purge(os_clock_ms(), 8 * MIB);
        fake_os_pass_ms(options.purge_delay_ms + 10);
    }
    assert_int_equal(mapped_bytes(), SUPERSLAB_BYTES);
    assert_int_equal(arena_check(), 0);
    fake_os_mend();
    make_dirty(1);
    assert_int_equal(arena_purge(os_clock_ms(), ARENA_PURGE_ALL), SUPERSLAB_BYTES);
    assert_int_equal(arena_check(), 0);
}

enum { CALL_COUNT = 100 };

static void test_refused_purges_are_not_tried_at_each_free(void **state) {
    (void)state;
    page_map_init();
    options.purge_delay_ms = 0;
    struct run *runs[CALL_COUNT];
    struct run *kept = take_plain(1);
    for (unsigned i = 0; i < CALL_COUNT; i++) {
        runs[i] = take_plain(1);
    }
    fake_os_fail(OS_MADVISE, 1, true);
    const uint64_t calls = fake_os_calls(OS_MADVISE);
    for (unsigned i = 0; i < CALL_COUNT; i++) {
        arena_give(runs[i]);
    }
    // Each time that there is an eighth more: of few pages that is each page.
    assert_true(fake_os_calls(OS_MADVISE) - calls < CALL_COUNT / 2);
    assert_int_equal(dirty_bytes(), CALL_COUNT * PAGE_BYTES);
    fake_os_mend();
    assert_int_equal(arena_purge(os_clock_ms(), ARENA_PURGE_ALL), CALL_COUNT * PAGE_BYTES);
    // Until it may be otherwise.
    arena_give(kept);
    for (unsigned i = 0; i < 3; i++) {
        arena_purge(os_clock_ms(), 8 * MIB);
    }
    assert_int_equal(dirty_bytes(), 0);
    assert_int_equal(arena_check(), 0);
}

static void test_refused_room_is_not_asked_for_again(void **state) {
    (void)state;
    page_map_init();
    struct run *parts[SUPERSLAB_PAGES / 2];
    for (unsigned i = 0; i < ARRAY_COUNT(parts); i++) {
        parts[i] = take_plain(1);
        take_plain(1);
    }
    for (unsigned i = 0; i < ARRAY_COUNT(parts); i++) {
        arena_give(parts[i]);
    }
    fake_os_fail(OS_MADVISE, 1, true);
    const uint64_t calls = fake_os_calls(OS_MADVISE);
    for (unsigned i = 0; i < CALL_COUNT; i++) {
        arena_note_beside(2 * PAGE_BYTES * (i + 1));
        arena_make_room();
    }
    assert_int_equal(fake_os_calls(OS_MADVISE) - calls, ARRAY_COUNT(parts));
    fake_os_mend();
    // Until it may be otherwise.
    for (unsigned i = 0; i < 2; i++) {
        fake_os_pass_ms(options.purge_delay_ms + 10);
        arena_purge(os_clock_ms(), 8 * MIB);
    }
    assert_int_equal(dirty_bytes(), 0);
    assert_int_equal(arena_check(), 0);
}

// Ticks go by the C library's clock, which a program may fake: here it is nine seconds ahead of the system's.
static void test_what_is_wanted_late_is_told_by_one_clock(void **state) {
    (void)state;
    start_early();
    assert_int_equal(arena_purge(10100, 8 * MIB), 8 * PAGE_BYTES);
    fake_os_pass_ms(1601);
    take_plain(2);
    assert_int_equal(asked_of->refault_bytes, 0);
    assert_int_equal(asked_of->early_bytes, 0);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_purge_by_the_clock),
        cmocka_unit_test(test_early_rounds),
        cmocka_unit_test(test_a_round_that_is_too_early_is_not_held),
        cmocka_unit_test(test_what_a_run_grows_by_is_wanted_again),
        cmocka_unit_test(test_what_is_wanted_late_was_given_back_rightly),
        cmocka_unit_test(test_clock_that_goes_back),
        cmocka_unit_test(test_no_early_rounds_where_nothing_may_come_back),
        cmocka_unit_test(test_early_rounds_leave_huge_pages_whole),
        cmocka_unit_test(test_shorter_delay_holds_at_once),
        cmocka_unit_test(test_purges_after_very_many_rounds),
        cmocka_unit_test(test_purge_in_few_calls),
        cmocka_unit_test(test_no_delay_purges_at_once),
        cmocka_unit_test(test_refused_purge_is_tried_again),
        cmocka_unit_test(test_a_locked_page_stays_alone),
        cmocka_unit_test(test_behind_many_locked_pages_the_rest_goes),
        cmocka_unit_test(test_beside_a_locked_stretch_others_go),
        cmocka_unit_test(test_where_all_is_refused_few_calls_are_made),
        cmocka_unit_test(test_a_tick_does_not_end_a_purge_of_everything),
        cmocka_unit_test(test_only_what_the_system_refuses_may_stay),
        cmocka_unit_test(test_what_a_fork_in_a_purge_takes_stays),
        cmocka_unit_test(test_what_is_not_noted_goes_under_the_lock),
        cmocka_unit_test(test_a_stretch_goes_but_for_a_locked_piece),
        cmocka_unit_test(test_purges_of_lost_threads_end_with_a_fork),
        cmocka_unit_test(test_only_pages_under_way_are_own),
        cmocka_unit_test(test_what_goes_without_a_delay_is_counted),
        cmocka_unit_test(test_wholly_free_superslabs_go_where_nothing_is_cleared),
        cmocka_unit_test(test_refused_purges_are_not_tried_at_each_free),
        cmocka_unit_test(test_refused_room_is_not_asked_for_again),
        cmocka_unit_test(test_what_is_wanted_late_is_told_by_one_clock),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
