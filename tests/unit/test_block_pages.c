// Which huge blocks ask for huge pages, and how these are divided.
#include "isolate.h"

#include <string.h>

#include "base/bits.h"
#include "config/options.h"
#include "control/learner.h"
#include "fake_os.h"
#include "heap/block_pages.h"
#include "heap/huge.h"
#include "space/huge_pages.h"
#include "space/page_map.h"

#define BLOCK_BYTES (16 * MIB)
// Between two touched pages.
#define DENSE 4096
#define SPARSE 65536

static void start(void) {
    page_map_init();
    learner_start();
    options.huge_cache_bytes = GIB;
}

static struct huge *huge_of(const char *block) {
    struct huge *huge = huge_find((uintptr_t)block);
    assert_non_null(huge);
    return huge;
}

static void touch(char *block, size_t from, size_t bytes, size_t step) {
    for (size_t at = from; at < bytes; at += step) {
        block[at] = 1;
    }
}

static char *make(size_t bytes, size_t step) {
    char *block = huge_alloc(bytes, PAGE_BYTES, false);
    assert_non_null(block);
    touch(block, 0, bytes, step);
    assert_int_equal(huge_check(), 0);
    return block;
}

static void drop(char *block) {
    assert_true(huge_free(huge_of(block), (uintptr_t)block));
    assert_int_equal(huge_check(), 0);
}

static char *resize(char *block, size_t bytes) {
    struct huge *huge = huge_of(block);
    assert_true(huge_resize(huge, bytes));
    assert_int_equal(huge_check(), 0);
    return (char *)huge->start;
}

static bool asks(const char *block) {
    return fake_os_wish(block) == OS_HUGE_PAGES_ALWAYS;
}

static void test_blocks_ask_after_dense_ones(void **state) {
    (void)state;
    start();
    for (unsigned i = 0; i < 4 * BLOCK_PAGES_PROBE; i++) {
        char *block = make(BLOCK_BYTES, DENSE);
        assert_int_equal(asks(block), i % BLOCK_PAGES_PROBE != 0);
        if (asks(block)) {
            assert_true(asks(block + BLOCK_BYTES - 1));
            assert_int_equal((uintptr_t)block % os_huge_page_bytes(), 0);
        }
    }
    assert_int_equal(atomic_load_relaxed(&decision_log.decided), 1);
    const struct decision *row = &decision_log.decisions[1];
    assert_int_equal(atomic_load_relaxed(&row->knob), POLICY_KNOB_huge_block_pages);
    assert_int_equal(atomic_load_relaxed(&row->signal), POLICY_SIGNAL_resident);
    assert_int_equal(atomic_load_relaxed(&row->value), 1000);
}

static void test_blocks_do_not_ask_where_huge_pages_are_slow(void **state) {
    (void)state;
    start();
    make(BLOCK_BYTES, DENSE);
    fake_os_touch_ns(HUGE_PAGE_SLOW_NS);
    for (unsigned i = 0; i < 2 * BLOCK_PAGES_PROBE; i++) {
        char *block = make(BLOCK_BYTES, DENSE);
        assert_false(asks(block) || asks(block + BLOCK_BYTES - 1));
    }
    const struct decision *row = &decision_log.decisions[2];
    assert_int_equal(atomic_load_relaxed(&row->knob), POLICY_KNOB_huge_block_pages);
    assert_int_equal(atomic_load_relaxed(&row->to), 0);
    assert_int_equal(atomic_load_relaxed(&row->signal), POLICY_SIGNAL_touch);
    // Of a block that grows, what is new is tried.
    fake_os_touch_ns(1);
    char *block = NULL;
    for (unsigned i = 0; i < 4 * BLOCK_PAGES_PROBE && (block == NULL || !asks(block)); i++) {
        block = make(BLOCK_BYTES, DENSE);
    }
    assert_true(asks(block));
    fake_os_touch_ns(HUGE_PAGE_SLOW_NS);
    block = resize(block, 2 * BLOCK_BYTES);
    assert_false(asks(block + 2 * BLOCK_BYTES - 1));
}

static void test_sparse_blocks_never_ask(void **state) {
    (void)state;
    start();
    for (unsigned i = 0; i < 20; i++) {
        char *block = make(BLOCK_BYTES, i % 2 == 0 ? SPARSE : BLOCK_BYTES);
        assert_false(asks(block));
        if (i % 3 == 0) {
            drop(block);
        }
        block = make(BLOCK_BYTES, BLOCK_BYTES);
        assert_false(asks(resize(block, 2 * BLOCK_BYTES)));
    }
    assert_int_equal(atomic_load_relaxed(&decision_log.decided), 0);
}

// What was freed is gone, but was looked at.
static void test_freed_blocks_tell(void **state) {
    (void)state;
    start();
    options.huge_cache_bytes = 0;
    drop(make(BLOCK_BYTES, DENSE));
    char *block = make(BLOCK_BYTES, DENSE);
    assert_true(asks(block));
    drop(block);
    // One that was there before tells nothing, however it is used.
    options.huge_cache_bytes = GIB;
    drop(make(BLOCK_BYTES, DENSE));
    const uint64_t looks = fake_os_calls(OS_MINCORE);
    const uint64_t advices = fake_os_calls(OS_MADVISE);
    for (unsigned i = 0; i < 20; i++) {
        drop(make(BLOCK_BYTES, BLOCK_BYTES));
    }
    assert_int_equal(fake_os_calls(OS_MINCORE), looks);
    assert_int_equal(fake_os_calls(OS_MADVISE), advices);
}

static void test_blocks_that_grow(void **state) {
    (void)state;
    start();
    char *block = make(6 * MIB, DENSE);
    fake_os_block_behind(block);
    block = resize(block, 9 * MIB);
    assert_true(asks(block));
    assert_int_equal((uintptr_t)block % os_huge_page_bytes(), 0);
    const uint64_t advices = fake_os_calls(OS_MADVISE);
    // As far as those that were seen go; what comes then is looked at.
    touch(block, 6 * MIB, 9 * MIB, DENSE);
    block = resize(block, 20 * MIB);
    assert_true(asks(block));
    assert_int_equal(fake_os_calls(OS_MADVISE), advices);
    block = resize(block, 40 * MIB);
    assert_false(asks(block + 40 * MIB - 1));
    touch(block, 20 * MIB, 40 * MIB, DENSE);
    assert_true(asks(resize(block, 60 * MIB)));
}

static void test_blocks_unlike_those_seen(void **state) {
    (void)state;
    start();
    make(BLOCK_BYTES, DENSE);
    assert_false(asks(make(BLOCK_PAGES_BYTES_MIN - 64 * KIB, DENSE)));
    assert_false(asks(make((BLOCK_PAGES_LONGER + 1) * BLOCK_BYTES, DENSE)));
    assert_true(asks(make(BLOCK_BYTES, DENSE)));
}

// One of a huge page of 512 MiB would be resident as a whole, or have none.
static void test_blocks_shorter_than_huge_pages(void **state) {
    (void)state;
    fake_os_set_huge_page_bytes(512 * MIB);
    start();
    make(BLOCK_BYTES, DENSE);
    for (unsigned i = 0; i < BLOCK_PAGES_PROBE; i++) {
        assert_false(asks(make(BLOCK_BYTES, DENSE)));
    }
    char *block = make(BLOCK_BYTES, DENSE);
    assert_false(asks(resize(block, 2 * BLOCK_BYTES)));
}

// Blocks that are to read as zero and may stay untouched do not ask, nor do they in what asked before.
static void test_zeroed_blocks(void **state) {
    (void)state;
    start();
    make(BLOCK_BYTES, DENSE);
    char *asked = make(BLOCK_BYTES, DENSE);
    assert_true(asks(asked));
    char *zeroed = huge_alloc(BLOCK_BYTES, PAGE_BYTES, true);
    assert_false(asks(zeroed));
    touch(zeroed, 0, BLOCK_BYTES, DENSE);
    drop(asked);
    zeroed = huge_alloc(BLOCK_BYTES, PAGE_BYTES, true);
    assert_ptr_equal(zeroed, asked);
    assert_int_equal(fake_os_wish(zeroed), OS_HUGE_PAGES_NEVER);
    touch(zeroed, 0, BLOCK_BYTES, DENSE);
    drop(zeroed);
    assert_true(huge_table_state.clears);
    drop(make(BLOCK_BYTES, DENSE));
    huge_alloc(BLOCK_BYTES, PAGE_BYTES, true);
    assert_true(asks(huge_alloc(BLOCK_BYTES, PAGE_BYTES, true)));
}

static void test_program_that_becomes_sparse_is_noticed(void **state) {
    (void)state;
    start();
    for (unsigned i = 0; i < 10; i++) {
        make(BLOCK_BYTES, DENSE);
    }
    char *block = make(BLOCK_BYTES, DENSE);
    assert_true(asks(block));
    unsigned asked = 0;
    for (unsigned i = 0; i < 4 * BLOCK_PAGES_PROBE; i++) {
        asked += asks(make(BLOCK_BYTES, SPARSE));
    }
    assert_in_range(asked, 1, BLOCK_PAGES_PROBE);
    assert_false(asks(make(BLOCK_BYTES, SPARSE)));
    // What asked before is told, once.
    drop(block);
    const uint64_t advices = fake_os_calls(OS_MADVISE);
    for (unsigned i = 0; i < 3; i++) {
        assert_ptr_equal(make(BLOCK_BYTES, SPARSE), block);
        assert_int_equal(fake_os_wish(block), OS_HUGE_PAGES_NEVER);
        assert_int_equal(fake_os_calls(OS_MADVISE), advices + 1);
        drop(block);
    }
}

static void test_without_the_learner_nothing_is_looked_at(void **state) {
    (void)state;
    start();
    options.learn = 0;
    for (unsigned i = 0; i < 10; i++) {
        assert_false(asks(resize(make(BLOCK_BYTES, DENSE), BLOCK_BYTES + MIB)));
    }
    assert_int_equal(fake_os_calls(OS_MINCORE), 0);
    assert_int_equal(fake_os_calls(OS_MADVISE), 0);
    options.learn = 1;
    char *block = make(BLOCK_BYTES, DENSE);
    assert_true(asks(block));
    options.learn = 0;
    drop(block);
    assert_ptr_equal(make(BLOCK_BYTES, DENSE), block);
    assert_false(asks(block));
}

static void test_kernel_that_does_not_tell(void **state) {
    (void)state;
    start();
    fake_os_fail(OS_MINCORE, 1, true);
    for (unsigned i = 0; i < 10; i++) {
        assert_false(asks(make(BLOCK_BYTES, DENSE)));
    }
}

static void test_wishes_of_the_option(void **state) {
    (void)state;
    start();
    options.huge_pages = huge_pages_always;
    assert_true(asks(make(3 * MIB, DENSE)));
    options.huge_pages = huge_pages_never;
    assert_int_equal(fake_os_wish(make(BLOCK_BYTES, DENSE)), OS_HUGE_PAGES_NEVER);
    options.huge_pages = huge_pages_system;
    assert_int_equal(fake_os_wish(make(BLOCK_BYTES, DENSE)), OS_HUGE_PAGES_DEFAULT);
    assert_int_equal(fake_os_calls(OS_MINCORE), 0);
}

// Where pages go different ways from an address on: a page of each kind of call.
static void divide(uint64_t splits) {
    const uint64_t before = fake_os_split_bytes();
    // Shortened.
    char *block = resize(make(3 * BLOCK_BYTES, DENSE), BLOCK_BYTES);
    assert_int_equal(fake_os_split_bytes() - before, splits * 4096);
    // Kept in part, and as a whole.
    drop(block);
    block = make(BLOCK_BYTES / 2, DENSE);
    assert_int_equal(fake_os_split_bytes() - before, 2 * splits * 4096);
    // Moved in part, and the rest.
    char *longer = make(BLOCK_BYTES / 2 - MIB, DENSE);
    drop(block);
    block = make(2 * BLOCK_BYTES, DENSE);
    assert_int_equal(huge_of(block)->may_have_huge_pages, splits);
    drop(longer);
    drop(block);
    huge_purge(0, true);
}

static void test_huge_pages_are_split_where_they_part(void **state) {
    (void)state;
    start();
    options.huge_pages = huge_pages_system;
    divide(0);
    assert_int_equal(fake_os_split_bytes(), 0);
    options.huge_pages = huge_pages_always;
    divide(1);
}

// The clean part of a zeroed block lies amid huge pages.
static void test_clean_part_is_split_off(void **state) {
    (void)state;
    start();
    huge_table_state.clears = true;
    options.huge_pages = huge_pages_always;
    drop(make(BLOCK_BYTES, DENSE));
    const uint64_t before = fake_os_split_bytes();
    assert_non_null(huge_alloc(BLOCK_BYTES, PAGE_BYTES, true));
    assert_int_equal(fake_os_split_bytes() - before, 2 * 4096);
}

// Pieces of mappings that asked and of such as did not.
static void test_any_mixture(void **state) {
    (void)state;
    start();
    options.huge_cache_bytes = 64 * MIB;
    char *blocks[8] = {NULL};
    uint64_t random_state = test_seed();
    unsigned asked = 0;
    for (unsigned i = 0; i < 600; i++) {
        const unsigned at = (unsigned)random_next(&random_state) % ARRAY_COUNT(blocks);
        const size_t bytes = 4 * MIB + 4096 * (1 + random_next(&random_state) % 4000);
        const size_t step = i % 200 < 150 ? DENSE : SPARSE;
        if (blocks[at] != NULL && i % 3 == 0) {
            blocks[at] = resize(blocks[at], bytes);
            touch(blocks[at], 0, bytes, step);
        } else {
            if (blocks[at] != NULL) {
                drop(blocks[at]);
            }
            blocks[at] = make(bytes, step);
        }
        const struct huge *huge = huge_of(blocks[at]);
        asked += huge->asked != HUGE_ASKED_NOT;
        bool any = false;
        bool all = true;
        for (size_t offset = 0; offset < huge->usable_bytes; offset += 4096) {
            any |= asks(blocks[at] + offset);
            all &= asks(blocks[at] + offset);
        }
        // The part that asked may have been cut off.
        assert_true(!any || huge->asked != HUGE_ASKED_NOT);
        assert_true(all || huge->asked != HUGE_ASKED_WHOLE);
        assert_true(!any || huge->may_have_huge_pages);
    }
    assert_true(asked > 0);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_ask_after_dense_ones),
        cmocka_unit_test(test_blocks_do_not_ask_where_huge_pages_are_slow),
        cmocka_unit_test(test_sparse_blocks_never_ask),
        cmocka_unit_test(test_freed_blocks_tell),
        cmocka_unit_test(test_blocks_that_grow),
        cmocka_unit_test(test_blocks_unlike_those_seen),
        cmocka_unit_test(test_blocks_shorter_than_huge_pages),
        cmocka_unit_test(test_zeroed_blocks),
        cmocka_unit_test(test_program_that_becomes_sparse_is_noticed),
        cmocka_unit_test(test_without_the_learner_nothing_is_looked_at),
        cmocka_unit_test(test_kernel_that_does_not_tell),
        cmocka_unit_test(test_wishes_of_the_option),
        cmocka_unit_test(test_huge_pages_are_split_where_they_part),
        cmocka_unit_test(test_clean_part_is_split_off),
        cmocka_unit_test(test_any_mixture),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
