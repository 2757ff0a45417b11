// Guarded blocks: where they lie, in what order slots are used, what is noticed beside them, and what
// malloc's other functions do with them.
#include "isolate.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "api/alloc.h"
#include "base/bits.h"
#include "config/counters.h"
#include "config/options.h"
#include "control/stats.h"
#include "fake_os.h"
#include "hakmem.h"
#include "heap/guarded_report.h"
#include "space/page_map.h"
#include "thread/fork.h"
#include "thread/lifecycle.h"

#define SLOTS 16
#define MACHINE_PAGE 4096

static void start(uint64_t sample) {
    setenv("HAKMEM_GUARD_SLOTS", "16", 1);
    setenv("HAKMEM_ABORT", "0", 1);
    lifecycle_start();
    options.guard_sample = sample;
    assert_int_equal(guarded_start(), sample != 0);
}

static uint64_t counted(enum counter counter) {
    return atomic_load_relaxed(&process_counters.value[counter]);
}

static uintptr_t page_of(const void *block) {
    return align_down((uintptr_t)block, MACHINE_PAGE);
}

static char *make(size_t bytes) {
    char *block = guarded_alloc(bytes, 1);
    assert_non_null(block);
    assert_int_equal(guarded_block_bytes((uintptr_t)block), bytes == 0 ? 1 : bytes);
    return block;
}

static uintptr_t drop(const char *block) {
    uintptr_t damage;
    assert_true(guarded_free((uintptr_t)block, 1, &damage));
    return damage;
}

static void test_off_takes_nothing(void **state) {
    (void)state;
    start(0);
    const size_t ranges = fake_os_range_count();
    const uint64_t maps = fake_os_calls(OS_MMAP);
    assert_false(guarded_start());
    assert_false(guarded_is_on());
    assert_null(guarded_alloc(10, 1));
    assert_null(guarded_nearest((uintptr_t)&ranges));
    assert_int_equal(fake_os_range_count(), ranges);
    assert_int_equal(fake_os_calls(OS_MMAP), maps);
    assert_int_equal(guarded_check(), 0);
}

static void test_a_block_lies_alone_at_an_end(void **state) {
    (void)state;
    start(1);
    unsigned at_left = 0;
    unsigned at_right = 0;
    for (size_t bytes = 0; bytes <= MACHINE_PAGE; bytes += 1 + bytes / 50) {
        char *block = make(bytes);
        const uintptr_t page = page_of(block);
        const uintptr_t end = (uintptr_t)block + align_up(bytes == 0 ? 1 : bytes, BLOCK_ALIGN);
        assert_int_equal((uintptr_t)block % BLOCK_ALIGN, 0);
        // The whole power of two that divides the size.
        assert_true(bytes == 0 || (uintptr_t)block % (bytes & (~bytes + 1)) == 0);
        const bool is_left = (uintptr_t)block == page;
        assert_true(is_left || end == page + MACHINE_PAGE);
        at_left += is_left;
        at_right += !is_left;
        assert_int_equal(fake_os_state((void *)page), FAKE_WRITABLE);
        assert_int_equal(fake_os_state((char *)page - 1), FAKE_INACCESSIBLE);
        assert_int_equal(fake_os_state((char *)page + MACHINE_PAGE), FAKE_INACCESSIBLE);
        assert_int_equal(page_map_get(page), page_entry(0, PAGE_KIND_GUARDED));
        memset(block, 0, bytes);
        assert_int_equal(guarded_check(), 0);
        assert_int_equal(drop(block), 0);
        assert_int_equal(fake_os_state((void *)page), FAKE_INACCESSIBLE);
    }
    assert_true(at_left > 20 && at_right > 20);
    assert_null(guarded_alloc(MACHINE_PAGE + 1, 1));
}

static void test_slots_are_used_in_the_order_they_were_freed(void **state) {
    (void)state;
    start(1);
    char *blocks[SLOTS];
    for (size_t i = 0; i < SLOTS; i++) {
        blocks[i] = make(100);
        for (size_t j = 0; j < i; j++) {
            assert_int_not_equal(page_of(blocks[i]), page_of(blocks[j]));
        }
    }
    const uint64_t full = counted(COUNTER_guarded_full);
    assert_null(guarded_alloc(100, 1));
    assert_int_equal(counted(COUNTER_guarded_full), full + 1);
    for (size_t i = 0; i < SLOTS; i++) {
        drop(blocks[i * 5 % SLOTS]);
        assert_int_equal(guarded_check(), 0);
    }
    for (size_t i = 0; i < SLOTS; i++) {
        assert_int_equal(page_of(make(100)), page_of(blocks[i * 5 % SLOTS]));
    }
    assert_null(guarded_alloc(100, 1));
    assert_int_equal(guarded_check(), 0);
}

static void test_totals(void **state) {
    (void)state;
    start(1);
    struct guarded_totals totals;
    char *first = make(100);
    make(28);
    guarded_totals(&totals);
    assert_int_equal(totals.live_count, 2);
    assert_int_equal(totals.live_bytes, 128);
    assert_int_equal(totals.pool_bytes, align_up((2 * SLOTS + 1) * MACHINE_PAGE, PAGE_BYTES));
    drop(first);
    guarded_totals(&totals);
    assert_int_equal(totals.live_count, 1);
    assert_int_equal(totals.live_bytes, 28);
    assert_int_equal(counted(COUNTER_guarded_allocs), 2);
    assert_int_equal(counted(COUNTER_guarded_frees), 1);
}

static void test_every_changed_byte_is_found(void **state) {
    (void)state;
    start(1);
    enum { BYTES = 1000 };
    for (size_t offset = 0; offset < MACHINE_PAGE; offset++) {
        char *block = make(BYTES);
        char *at = (char *)page_of(block) + offset;
        const bool is_inside = at >= block && at < block + BYTES;
        *at = (char)(*at + 1);
        assert_int_equal(drop(block), is_inside ? 0 : (uintptr_t)at);
    }
}

static void test_the_nearest_change_is_told(void **state) {
    (void)state;
    start(1);
    char *block = make(100);
    while (page_of(block) == (uintptr_t)block) {
        drop(block);
        block = make(100);
    }
    block[-1] = block[-50] = 0;
    assert_int_equal(drop(block), (uintptr_t)block - 1);
    block = make(100);
    block[100] = block[110] = 0;
    assert_int_equal(drop(block), (uintptr_t)block + 100);
}

static void test_only_the_start_of_a_live_block_is_freed(void **state) {
    (void)state;
    start(1);
    uintptr_t damage;
    char *block = make(64);
    assert_false(guarded_free((uintptr_t)block + 16, 1, &damage));
    assert_false(guarded_free((uintptr_t)block - MACHINE_PAGE, 1, &damage));
    assert_false(guarded_free((uintptr_t)&damage, 1, &damage));
    assert_int_equal(guarded_block_bytes((uintptr_t)block + 16), 0);
    drop(block);
    assert_false(guarded_free((uintptr_t)block, 1, &damage));
    assert_int_equal(guarded_block_bytes((uintptr_t)block), 0);
    assert_int_equal(guarded_check(), 0);
}

static void test_the_nearest_slot(void **state) {
    (void)state;
    start(1);
    char *first = make(4096);
    char *second = make(4096);
    assert_int_equal((uintptr_t)second - (uintptr_t)first, 2 * MACHINE_PAGE);
    const struct guarded_slot *slots[] = {guarded_nearest((uintptr_t)first),
                                          guarded_nearest((uintptr_t)second)};
    assert_int_equal(slots[0]->start, (uintptr_t)first);
    assert_int_equal(slots[1]->start, (uintptr_t)second);
    assert_ptr_equal(guarded_nearest((uintptr_t)first - 1), slots[0]);
    assert_ptr_equal(guarded_nearest((uintptr_t)first + 4096), slots[0]);
    assert_ptr_equal(guarded_nearest((uintptr_t)first + 4096 + 2047), slots[0]);
    assert_ptr_equal(guarded_nearest((uintptr_t)first + 4096 + 2048), slots[1]);
    assert_ptr_equal(guarded_nearest((uintptr_t)second - 1), slots[1]);
    assert_null(guarded_nearest((uintptr_t)second + 2 * MACHINE_PAGE));
    drop(first);
    assert_ptr_equal(guarded_nearest((uintptr_t)first), slots[0]);
}

static void test_an_opened_slot_is_not_used_again(void **state) {
    (void)state;
    start(1);
    for (size_t i = 0; i < SLOTS; i++) {
        drop(make(64));
    }
    char *first = make(64);
    drop(first);
    assert_true(guarded_open((uintptr_t)first));
    assert_int_equal(fake_os_state(first), FAKE_WRITABLE);
    for (size_t i = 0; i < 5 * SLOTS; i++) {
        char *block = make(64);
        assert_int_not_equal(page_of(block), page_of(first));
        drop(block);
        assert_int_equal(guarded_check(), 0);
    }
    assert_false(guarded_open((uintptr_t)&first));
}

// What a stray pointer reached before any block was there.
static void test_slots_opened_before_their_first_use_are_passed_by(void **state) {
    (void)state;
    start(1);
    const uintptr_t first = page_of(make(64));
    for (size_t i = 1; i < SLOTS; i += 3) {
        assert_true(guarded_open(first + 2 * i * MACHINE_PAGE));
    }
    assert_int_equal(guarded_check(), 0);
    // Refused once: the slot is the next one's.
    fake_os_fail(OS_MPROTECT, 1, false);
    assert_null(guarded_alloc(64, 1));
    fake_os_mend();
    for (size_t i = 1; i < SLOTS; i++) {
        if (i % 3 != 1) {
            assert_int_equal(page_of(make(64)), first + 2 * i * MACHINE_PAGE);
            assert_int_equal(guarded_check(), 0);
        }
    }
    assert_null(guarded_alloc(64, 1));
    assert_int_equal(guarded_check(), 0);
}

// ---- Failures

static void test_without_memory_there_is_no_pool(void **state) {
    (void)state;
    start(0);
    options.guard_sample = 1;
    unsigned refused = 0;
    for (uint64_t nth = 1; !guarded_is_on(); nth++) {
        const size_t mapped = fake_os_bytes(FAKE_INACCESSIBLE);
        const uint64_t struck = fake_os_struck();
        fake_os_fail(FAKE_ANY, nth, false);
        if (!guarded_start()) {
            refused++;
            assert_int_equal(fake_os_struck(), struck + 1);
            assert_int_equal(fake_os_bytes(FAKE_INACCESSIBLE), mapped);
            assert_null(guarded_alloc(10, 1));
        }
        fake_os_mend();
    }
    assert_true(refused >= 1);
    drop(make(10));
}

static void test_a_refused_page_is_no_block(void **state) {
    (void)state;
    start(1);
    for (size_t i = 0; i < 3 * SLOTS; i++) {
        fake_os_fail(OS_MPROTECT, 1, false);
        assert_null(guarded_alloc(10, 1));
        fake_os_mend();
        assert_int_equal(guarded_check(), 0);
        drop(make(10));
    }
    for (size_t i = 0; i < SLOTS; i++) {
        make(10);
    }
}

static void test_a_refused_guard_is_survived(void **state) {
    (void)state;
    start(1);
    for (size_t i = 0; i < 3 * SLOTS; i++) {
        char *block = make(10);
        fake_os_fail(i % 2 == 0 ? OS_MPROTECT : OS_MADVISE, 1, true);
        drop(block);
        fake_os_mend();
        assert_int_equal(guarded_check(), 0);
    }
}

// ---- Sampling

// How many of a million calls are due.
static uint64_t due_of_million(uint64_t seed, uint64_t stands_for) {
    struct guarded_sampler sampler = {1, seed};
    uint64_t due = 0;
    for (unsigned i = 0; i < 1000000; i++) {
        due += guarded_is_due(&sampler, stands_for);
    }
    return due;
}

static void test_one_in_n_is_due(void **state) {
    (void)state;
    start(0);
    options.guard_sample = 1;
    assert_int_equal(due_of_million(1, 1), 1000000);
    // The interval is uniform in 1 .. 2N-1, so the count of a million has a standard deviation of about
    // sqrt(1e6 / N / 3): four of them.
    for (uint64_t seed = 1; seed <= 5; seed++) {
        options.guard_sample = 10;
        assert_in_range(due_of_million(seed, 1), 100000 - 730, 100000 + 730);
        options.guard_sample = 1000;
        assert_in_range(due_of_million(seed, 1), 1000 - 73, 1000 + 73);
        // Each call for 20 allocations, but for those that are due: 20e6 / 1019.
        assert_in_range(due_of_million(seed, 20), 19627 - 327, 19627 + 327);
    }
}

// What is guarded brings no refill, and stands for itself alone.
static void test_the_share_where_refills_are_longer(void **state) {
    (void)state;
    setenv("HAKMEM_GUARD_SLOTS", "1024", 1);
    lifecycle_start();
    options.guard_sample = 20;
    assert_true(guarded_start());
    void *blocks[600] = {NULL};
    for (unsigned i = 0; i < 100000; i++) {
        hakmem_dealloc(blocks[i % ARRAY_COUNT(blocks)]);
        blocks[i % ARRAY_COUNT(blocks)] = hakmem_alloc(64);
    }
    // Most come from the cache, which is never chosen.
    assert_in_range(counted(COUNTER_guarded_allocs), 1, 100000 / 20);
}

static void test_no_call_is_favoured(void **state) {
    (void)state;
    start(0);
    options.guard_sample = 8;
    struct guarded_sampler sampler = {1, 7};
    unsigned due[7] = {0};
    for (unsigned i = 0; i < 700000; i++) {
        due[i % 7] += guarded_is_due(&sampler, 1);
    }
    for (unsigned i = 0; i < 7; i++) {
        assert_in_range(due[i], 12500 - 400, 12500 + 400);
    }
}

static void test_the_share_of_allocations(void **state) {
    (void)state;
    setenv("HAKMEM_MODE", "hardened", 1);
    start(100);
    struct thread_cache *cache = lifecycle_attach();
    cache->sampler = (struct guarded_sampler){1, 12345};
    for (unsigned i = 0; i < 100000; i++) {
        hakmem_dealloc(hakmem_alloc(i % 2000));
    }
    assert_in_range(counted(COUNTER_guarded_allocs), 1000 - 73, 1000 + 73);
    assert_int_equal(counted(COUNTER_guarded_frees), counted(COUNTER_guarded_allocs));
    assert_int_equal(hakmem_check(), 0);
}

// The first refills of a thread are small: each stands for as many allocations as it serves, not for those of a whole one.
static void *take_some(void *share) {
    for (size_t bytes = 16; bytes <= 128; bytes += 16) {
        for (unsigned i = 0; i < 12; i++) {
            hakmem_dealloc(hakmem_alloc(bytes));
            *(uint64_t *)share += hakmem_alloc(bytes) != NULL;
        }
    }
    return NULL;
}

static void test_the_share_of_short_threads(void **state) {
    (void)state;
    setenv("HAKMEM_GUARD_SLOTS", "4096", 1);
    lifecycle_start();
    options.guard_sample = 100;
    assert_true(guarded_start());
    uint64_t count = 0;
    for (unsigned i = 0; i < 200; i++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, take_some, &count), 0);
        pthread_join(thread, NULL);
    }
    // `count` is of every second allocation.
    assert_in_range(counted(COUNTER_guarded_allocs), count / 120, count / 48);
}

// ---- malloc's functions

// Until the chosen kind of block comes.
static char *sampled(size_t bytes) {
    char *block = hakmem_alloc(bytes);
    assert_non_null(block);
    assert_true(guarded_contains((uintptr_t)block));
    return block;
}

static void test_size_and_resize(void **state) {
    (void)state;
    start(1);
    char *block = sampled(100);
    assert_int_equal(hakmem_block_bytes(block), 100);
    memset(block, 7, 100);
    char *longer = hakmem_resize(block, 5000);
    assert_non_null(longer);
    assert_false(guarded_contains((uintptr_t)longer));
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(longer[i], 7);
    }
    hakmem_dealloc(longer);
    block = sampled(200);
    memset(block, 8, 200);
    char *shorter = hakmem_resize(block, 50);
    assert_int_equal(hakmem_block_bytes(shorter), 50);
    assert_int_equal(shorter[49], 8);
    assert_int_equal(hakmem_block_bytes(sampled(0)), 1);
    assert_null(hakmem_resize(shorter, 0));
    assert_int_equal(counted(COUNTER_misuses), 0);
    assert_int_equal(hakmem_check(), 0);
}

static void test_zeroed_and_aligned(void **state) {
    (void)state;
    start(1);
    for (unsigned i = 0; i < 3 * SLOTS; i++) {
        char *block = hakmem_alloc_zeroed(300);
        for (unsigned j = 0; j < 300; j++) {
            assert_int_equal(block[j], 0);
        }
        memset(block, 1, 300);
        hakmem_dealloc(block);
    }
    for (size_t alignment = 16; alignment <= 8192; alignment *= 2) {
        for (size_t bytes = 1; bytes < 6000; bytes = 2 * bytes + 1) {
            char *block = hakmem_alloc_aligned(alignment, bytes);
            assert_int_equal((uintptr_t)block % alignment, 0);
            assert_true(hakmem_block_bytes(block) >= bytes);
            memset(block, 1, bytes);
            dealloc_sized(block, alignment, bytes);
        }
    }
    assert_true(counted(COUNTER_guarded_allocs) > 100);
    assert_int_equal(counted(COUNTER_misuses), 0);
    assert_int_equal(hakmem_check(), 0);
}

static void test_sized_free(void **state) {
    (void)state;
    setenv("HAKMEM_MODE", "hardened", 1);
    start(1);
    for (size_t bytes = 0; bytes < 4000; bytes += 37) {
        dealloc_sized(sampled(bytes), BLOCK_ALIGN, bytes);
    }
    assert_int_equal(counted(COUNTER_misuses), 0);
    char *block = sampled(100);
    stderr_begin();
    dealloc_sized(block, BLOCK_ALIGN, 101);
    assert_non_null(strstr(stderr_end(), "size mismatch"));
    assert_int_equal(counted(COUNTER_misuses), 1);
    dealloc_sized(block, BLOCK_ALIGN, 100);
    assert_int_equal(counted(COUNTER_misuses), 1);
}

static void test_misuse_is_told_and_ignored(void **state) {
    (void)state;
    start(1);
    char *block = sampled(64);
    hakmem_dealloc(block);
    stderr_begin();
    hakmem_dealloc(block);
    assert_non_null(strstr(stderr_end(), "hakmem: double free: "));
    stderr_begin();
    assert_null(hakmem_resize(block, 10));
    assert_non_null(strstr(stderr_end(), "hakmem: realloc of a freed block: "));
    stderr_begin();
    assert_int_equal(hakmem_block_bytes(block), 0);
    assert_non_null(strstr(stderr_end(), "hakmem: malloc_usable_size of a freed block: "));
    block = sampled(64);
    stderr_begin();
    hakmem_dealloc(block + 16);
    assert_non_null(strstr(stderr_end(), "hakmem: invalid free: "));
    assert_int_equal(counted(COUNTER_misuses), 4);
    hakmem_dealloc(block);
    assert_int_equal(counted(COUNTER_misuses), 4);
    assert_int_equal(hakmem_check(), 0);
}

static void test_statistics(void **state) {
    (void)state;
    start(1);
    struct hakmem_totals before, after;
    hakmem_totals(&before);
    sampled(100);
    sampled(50);
    hakmem_totals(&after);
    assert_int_equal(after.live_blocks - before.live_blocks, 2);
    assert_int_equal(after.live_bytes - before.live_bytes, 150);
}

// ---- Threads and fork

enum { THREADS = 4, ROUNDS = 4000, PASSED = 64 };

static _Atomic(char *) passed[PASSED];

static void *allocate_and_pass(void *argument) {
    uint64_t random_state = (uintptr_t)argument + 1;
    for (unsigned i = 0; i < ROUNDS; i++) {
        const uint64_t random = random_next(&random_state);
        const size_t bytes = 8 + random % 3000;
        char *block = hakmem_alloc(bytes);
        require(block != NULL);
        memset(block, (int)(bytes % 251), bytes);
        memcpy(block, &bytes, sizeof bytes);
        block = atomic_exchange_explicit(&passed[random >> 58], block, memory_order_acq_rel);
        if (block != NULL) {
            size_t kept;
            memcpy(&kept, block, sizeof kept);
            for (size_t j = sizeof kept; j < kept; j++) {
                require(block[j] == (char)(kept % 251));
            }
            hakmem_dealloc(block);
        }
    }
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    start(2);
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, allocate_and_pass, (void *)i), 0);
    }
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(guarded_check(), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    for (unsigned i = 0; i < PASSED; i++) {
        hakmem_dealloc(atomic_load_relaxed(&passed[i]));
    }
    struct guarded_totals totals;
    guarded_totals(&totals);
    assert_int_equal(totals.live_count, 0);
    assert_true(counted(COUNTER_guarded_allocs) > 100);
    assert_int_equal(counted(COUNTER_misuses), 0);
    assert_int_equal(hakmem_check(), 0);
}

static int use_blocks_of_parent(const void *context) {
    char *const *blocks = context;
    for (unsigned i = 0; i < 3; i++) {
        require(blocks[i][0] == (char)i);
        hakmem_dealloc(blocks[i]);
    }
    for (unsigned i = 0; i < 3 * SLOTS; i++) {
        hakmem_dealloc(hakmem_alloc(100));
    }
    require(hakmem_check() == 0);
    return 0;
}

static void test_fork(void **state) {
    (void)state;
    start(1);
    char *blocks[3];
    for (unsigned i = 0; i < 3; i++) {
        blocks[i] = sampled(100);
        blocks[i][0] = (char)i;
    }
    fork_prepare();
    hakmem_dealloc(hakmem_alloc(10));
    fork_parent();
    assert_int_equal(run_scenario(use_blocks_of_parent, blocks), 0);
    assert_int_equal(use_blocks_of_parent(blocks), 0);
}

// ---- The check

// The line that a corruption draws; undone, there is none. What it makes disagree as well is a line too.
#define EXPECT_VIOLATION(corrupt, undo, line, count)      \
    do {                                                  \
        corrupt;                                          \
        stderr_begin();                                   \
        const size_t violations = guarded_check();        \
        const char *text = stderr_end();                  \
        if (strstr(text, line) == NULL) {                 \
            fail_msg("\"%s\" is not in: %s", line, text); \
        }                                                 \
        assert_int_equal(violations, count);              \
        undo;                                             \
        assert_int_equal(guarded_check(), 0);             \
    } while (0)

static void test_check_sees_each_violation(void **state) {
    (void)state;
    start(1);
    char *freed = make(100);
    char *block = make(100);
    drop(freed);
    struct guarded_slot *slot = (struct guarded_slot *)(uintptr_t)guarded_nearest((uintptr_t)block);
    EXPECT_VIOLATION(block[100]++, block[100]--,
                     "hakmem: check: guarded slot 1: nothing is written beside the block: 0x", 1);
    EXPECT_VIOLATION(atomic_store_relaxed(&slot->state, 3),
                     atomic_store_relaxed(&slot->state, GUARDED_LIVE),
                     "guarded slot 1: state <= freed: 3, 2", 3);
    EXPECT_VIOLATION(atomic_store_relaxed(&slot->state, GUARDED_FREED),
                     atomic_store_relaxed(&slot->state, GUARDED_LIVE),
                     "live_count == live slots: 1, 0", 2);
    EXPECT_VIOLATION(
        atomic_store_relaxed(&slot->state, GUARDED_UNUSED),
        atomic_store_relaxed(&slot->state, GUARDED_LIVE),
        "guarded slot 1: unused from fresh_index on, and opened ones alone before: 0, 2", 3);
    EXPECT_VIOLATION(slot->bytes = 5000, slot->bytes = 100, "end <= its page's end", 3);
    EXPECT_VIOLATION(slot->start -= MACHINE_PAGE, slot->start += MACHINE_PAGE,
                     "guarded slot 1: start >= its page", 3);
    EXPECT_VIOLATION(page_map_set(page_of(block), 1, PAGE_ENTRY_NONE),
                     page_map_set(page_of(block), 1, page_entry(0, PAGE_KIND_GUARDED)),
                     "each page's entry is a guarded one: 0, ", 1);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_off_takes_nothing),
        cmocka_unit_test(test_a_block_lies_alone_at_an_end),
        cmocka_unit_test(test_slots_are_used_in_the_order_they_were_freed),
        cmocka_unit_test(test_totals),
        cmocka_unit_test(test_every_changed_byte_is_found),
        cmocka_unit_test(test_the_nearest_change_is_told),
        cmocka_unit_test(test_only_the_start_of_a_live_block_is_freed),
        cmocka_unit_test(test_the_nearest_slot),
        cmocka_unit_test(test_an_opened_slot_is_not_used_again),
        cmocka_unit_test(test_slots_opened_before_their_first_use_are_passed_by),
        cmocka_unit_test(test_without_memory_there_is_no_pool),
        cmocka_unit_test(test_a_refused_page_is_no_block),
        cmocka_unit_test(test_a_refused_guard_is_survived),
        cmocka_unit_test(test_one_in_n_is_due),
        cmocka_unit_test(test_the_share_where_refills_are_longer),
        cmocka_unit_test(test_no_call_is_favoured),
        cmocka_unit_test(test_the_share_of_allocations),
        cmocka_unit_test(test_the_share_of_short_threads),
        cmocka_unit_test(test_size_and_resize),
        cmocka_unit_test(test_zeroed_and_aligned),
        cmocka_unit_test(test_sized_free),
        cmocka_unit_test(test_misuse_is_told_and_ignored),
        cmocka_unit_test(test_statistics),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_check_sees_each_violation),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
