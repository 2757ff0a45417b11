// The entry points, on simulated machines of several kinds and in every mode.
#include "isolate.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api/alloc.h"
#include "base/bits.h"
#include "config/options.h"
#include "control/stats.h"
#include "counted.h"
#include "fake_os.h"
#include "heap/huge.h"
#include "heap/slab.h"
#include "marked.h"
#include "thread/lifecycle.h"
#include "thread/maintenance.h"
#include "workload.h"

// ---- alloc and dealloc ----

static void test_every_small_size(void **state) {
    (void)state;
    for (size_t bytes = 0; bytes <= SMALL_BYTES_MAX; bytes += bytes < 2048 ? 1 : 61) {
        char *block = hakmem_alloc(bytes);
        assert_non_null(block);
        assert_int_equal((uintptr_t)block % BLOCK_ALIGN, 0);
        const size_t usable = hakmem_block_bytes(block);
        assert_int_equal(usable, size_classes[size_class_index(bytes)].block_bytes);
        memset(block, 1, usable);
        if (bytes % 3 != 0) {
            hakmem_dealloc(block);
        }
    }
    check();
}

// Of a class whose blocks stay in the thread's node.
static void test_sizes_of_blocks_in_use(void **state) {
    (void)state;
    char *blocks[200];
    for (size_t bytes = 16; bytes <= SMALL_BYTES_MAX; bytes = bytes * 3 / 2) {
        const size_t usable = size_classes[size_class_index(bytes)].block_bytes;
        for (unsigned i = 0; i < 2 * ARRAY_COUNT(blocks); i++) {
            const unsigned at = i % ARRAY_COUNT(blocks);
            if (i >= ARRAY_COUNT(blocks)) {
                assert_int_equal(hakmem_block_bytes(blocks[at]), usable);
                hakmem_dealloc(blocks[at]);
            }
            blocks[at] = hakmem_alloc(bytes);
            assert_int_equal(hakmem_block_bytes(blocks[at]), usable);
            assert_int_equal(hakmem_block_bytes(blocks[at / 2]), usable);
        }
        for (unsigned i = 0; i < ARRAY_COUNT(blocks); i++) {
            hakmem_dealloc(blocks[i]);
        }
    }
    check();
}

static void test_two_blocks_of_no_bytes_differ(void **state) {
    (void)state;
    void *first = hakmem_alloc(0);
    void *second = hakmem_alloc(0);
    assert_non_null(first);
    assert_non_null(second);
    assert_ptr_not_equal(first, second);
    hakmem_dealloc(first);
    hakmem_dealloc(second);
    hakmem_dealloc(NULL);
    check();
}

static void test_free_leaves_errno_alone(void **state) {
    (void)state;
    lifecycle_start();
    options.purge_delay_ms = 0;
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        void *block = hakmem_alloc(sizes[i]);
        fake_os_fail(FAKE_ANY, 1, true);
        errno = 1234;
        hakmem_dealloc(block);
        hakmem_dealloc(NULL);
        assert_int_equal(errno, 1234);
        fake_os_mend();
    }
    check();
}

static void test_success_leaves_errno_alone(void **state) {
    (void)state;
    errno = 1234;
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        void *block = hakmem_alloc(sizes[i]);
        void *zeroed = hakmem_alloc_zeroed(sizes[i]);
        void *aligned = hakmem_alloc_aligned(4096, sizes[i]);
        block = hakmem_resize(block, sizes[i] * 2);
        assert_true(block != NULL && zeroed != NULL && aligned != NULL);
        assert_int_equal(errno, 1234);
    }
}

static void test_impossible_sizes(void **state) {
    (void)state;
    static const size_t impossible[] = {
        SIZE_MAX,        SIZE_MAX - 15,  SIZE_MAX / 2 + 1, PTRDIFF_MAX, (size_t)PTRDIFF_MAX - 4096,
        (size_t)1 << 47, (size_t)1 << 46};
    void *block = hakmem_alloc(100);
    for (size_t i = 0; i < ARRAY_COUNT(impossible); i++) {
        errno = 0;
        assert_null(hakmem_alloc(impossible[i]));
        assert_int_equal(errno, ENOMEM);
        errno = 0;
        assert_null(hakmem_alloc_zeroed(impossible[i]));
        assert_int_equal(errno, ENOMEM);
        for (size_t alignment = 1; alignment <= GIB; alignment *= 32) {
            errno = 0;
            assert_null(hakmem_alloc_aligned(alignment, impossible[i]));
            assert_int_equal(errno, ENOMEM);
        }
        errno = 0;
        assert_null(hakmem_resize(block, impossible[i]));
        assert_int_equal(errno, ENOMEM);
        assert_int_equal(hakmem_block_bytes(block), 112);
        errno = 0;
        assert_null(hakmem_resize(NULL, impossible[i]));
        assert_int_equal(errno, ENOMEM);
    }
    assert_int_equal(counted(COUNTER_failures), ARRAY_COUNT(impossible) * 11);
    check();
}

// What no memory could serve is no reason to give up what is kept.
static void test_impossible_sizes_give_nothing_back(void **state) {
    (void)state;
    hakmem_dealloc(hakmem_alloc(5 * MIB));
    assert_true(huge_has_kept());
    assert_null(hakmem_alloc((size_t)1 << 50));
    assert_null(hakmem_alloc_aligned((size_t)1 << 50, 1));
    void *block = hakmem_alloc(100);
    assert_null(hakmem_resize(block, (size_t)1 << 50));
    assert_true(huge_has_kept());
}

// What is kept goes when the system refuses, and the request is made again.
static void test_reclaims_when_refused(void **state) {
    (void)state;
    hakmem_alloc(100);
    hakmem_dealloc(hakmem_alloc(40 * MIB));
    // Room for superslabs only in place of the kept mapping.
    fake_os_limit_bytes(fake_os_bytes(FAKE_WRITABLE) + fake_os_bytes(FAKE_READABLE));
    for (unsigned i = 0; i < 16; i++) {
        assert_non_null(hakmem_alloc(MIB));
    }
    assert_int_equal(fake_os_refused(), 1);
    fake_os_limit_bytes(0);
    hakmem_dealloc(hakmem_alloc(60 * MIB));
    fake_os_limit_bytes(fake_os_bytes(FAKE_WRITABLE) + fake_os_bytes(FAKE_READABLE));
    for (unsigned i = 0; i < 4000; i++) {
        assert_non_null(hakmem_alloc(8192));
    }
    assert_int_equal(fake_os_refused(), 2);
    check();
}

static uint64_t kept_bytes(void) {
    struct huge_totals totals;
    huge_totals(&totals);
    return totals.kept_bytes;
}

// A freed huge block is kept while the heap stays as it is, and goes, as far as needed, when the heap grows.
static void test_growth_lets_kept_mappings_go(void **state) {
    (void)state;
    hakmem_dealloc(hakmem_alloc(MIB));
    hakmem_dealloc(hakmem_alloc(40 * MIB));
    assert_int_equal(kept_bytes(), 40 * MIB);
    assert_non_null(hakmem_alloc(MIB));
    assert_int_equal(kept_bytes(), 40 * MIB);
    for (unsigned i = 1; i <= 40; i++) {
        assert_non_null(hakmem_alloc(MIB));
        assert_int_equal(kept_bytes(), (40 - i) * MIB);
    }
    check();
}

static void test_kept_mappings_go_before_a_larger_one_comes(void **state) {
    (void)state;
    hakmem_dealloc(hakmem_alloc(MIB));
    char *first = hakmem_alloc(16 * MIB);
    hakmem_dealloc(first);
    fake_os_limit_bytes(fake_os_bytes(FAKE_WRITABLE) + fake_os_bytes(FAKE_READABLE) + 6 * MIB);
    char *second = hakmem_alloc(21 * MIB);
    assert_non_null(second);
    mark(second, 21 * MIB, 1);
    errno = 0;
    assert_null(hakmem_alloc(21 * MIB));
    assert_int_equal(errno, ENOMEM);
    hakmem_dealloc(second);
    check();
}

// ---- alloc_zeroed ----

static void test_zeroed_memory(void **state) {
    (void)state;
    for (unsigned round = 0; round < 3; round++) {
        char *blocks[ARRAY_COUNT(sizes)];
        for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
            blocks[i] = hakmem_alloc_zeroed(sizes[i]);
            assert_non_null(blocks[i]);
            for (size_t at = 0; at < sizes[i]; at++) {
                if (blocks[i][at] != 0) {
                    fail_msg("byte %zu of %zu", at, sizes[i]);
                }
            }
            memset(blocks[i], 0xff, hakmem_block_bytes(blocks[i]));
        }
        for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
            hakmem_dealloc(blocks[i]);
        }
        if (round == 1) {
            maintenance_reclaim();
        }
    }
    check();
}

// ---- resize ----

static void test_resize_keeps_contents_between_all_kinds(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        for (size_t n = 0; n < ARRAY_COUNT(sizes); n++) {
            char *block = hakmem_alloc(sizes[i]);
            mark(block, sizes[i], 7);
            block = hakmem_resize(block, sizes[n]);
            assert_non_null(block);
            assert_true(hakmem_block_bytes(block) >= sizes[n]);
            check_marked(block, sizes[i] < sizes[n] ? sizes[i] : sizes[n], 7);
            if (sizes[n] >= sizes[i]) {
                assert_int_equal(block[sizes[i] - 1], 7);
            }
            mark(block, sizes[n], 8);
            hakmem_dealloc(block);
        }
    }
    check();
    maintenance_reclaim();
    struct stats stats;
    stats_collect(&stats);
    assert_int_equal(stats.gauge[GAUGE_live_bytes], 0);
}

static void test_resize_edge_cases(void **state) {
    (void)state;
    char *block = hakmem_resize(NULL, 100);
    assert_non_null(block);
    // Little changes stay in place, also downward to half.
    assert_ptr_equal(hakmem_resize(block, 112), block);
    assert_ptr_equal(hakmem_resize(block, 57), block);
    // Of the smallest class nothing is smaller.
    for (size_t bytes = 1; bytes <= BLOCK_ALIGN; bytes++) {
        char *least = hakmem_alloc(bytes);
        assert_ptr_equal(hakmem_resize(least, bytes), least);
        assert_ptr_equal(hakmem_resize(least, 1), least);
        hakmem_dealloc(least);
    }
    char *smaller = hakmem_resize(block, 40);
    assert_int_equal(hakmem_block_bytes(smaller), 48);
    assert_null(hakmem_resize(smaller, 0));
    options.abort = 0;
    stderr_begin();
    errno = 0;
    assert_null(hakmem_resize(smaller, 10));
    assert_int_equal(errno, EINVAL);
    assert_non_null(strstr(stderr_end(), "realloc of a freed block: 0x"));
    check();
}

static unsigned report_count;

void __real_report_refresh(void);
void __wrap_report_refresh(void);
void __wrap_report_refresh(void) {
    report_count++;
    __real_report_refresh();
}

// However long the thread stays at such a count.
static void test_books_are_written_once_for_each_early_slow_path(void **state) {
    (void)state;
    lifecycle_attach();
    for (unsigned count = 4; count <= 256; count *= 8) {
        atomic_store_relaxed(&thread_cache->activity, count);
        report_count = 0;
        for (unsigned i = 0; i < 1000; i++) {
            hakmem_dealloc(hakmem_alloc(MIB));
        }
        assert_in_range(report_count, 1, 100);  // by the clock as well
    }
}

static void test_refused_shrink_keeps_the_block(void **state) {
    (void)state;
    char *block = hakmem_alloc(60000);
    mark(block, 60000, 3);
    hakmem_alloc(16);
    fake_os_fail(FAKE_ANY, 1, true);
    static const size_t until_none[] = {MIB, 65537, 1000};
    for (size_t i = 0; i < ARRAY_COUNT(until_none); i++) {
        while (hakmem_alloc(until_none[i]) != NULL) {
        }
    }
    // It succeeded: nothing failed.
    const uint64_t failures = counted(COUNTER_failures);
    errno = 4711;
    char *same = hakmem_resize(block, 1000);
    assert_int_equal(errno, 4711);
    assert_int_equal(counted(COUNTER_failures), failures);
    assert_ptr_equal(same, block);
    check_marked(same, 60000, 3);
    errno = 0;
    assert_null(hakmem_resize(block, MIB));
    assert_int_equal(errno, ENOMEM);
    assert_int_equal(counted(COUNTER_failures), failures + 1);
    check_marked(block, 60000, 3);
    check();
}

// Large and huge blocks, which hardened mode copies where they shrink by much, and of which free_sized knows the length.
static void test_refused_shrink_in_hardened_mode(void **state) {
    (void)state;
    setenv("HAKMEM_MODE", "hardened", 1);
    setenv("HAKMEM_GUARD_SAMPLE", "0", 1);
    char *blocks[] = {hakmem_alloc(MIB + 100000), hakmem_alloc(5 * MIB)};
    fake_os_fail(FAKE_ANY, 1, true);
    static const size_t until_none[] = {MIB, 300000, 65537};
    for (size_t i = 0; i < ARRAY_COUNT(until_none); i++) {
        while (hakmem_alloc(until_none[i]) != NULL) {
        }
    }
    const uint64_t failures = counted(COUNTER_failures);
    for (size_t i = 0; i < ARRAY_COUNT(blocks); i++) {
        mark(blocks[i], MIB, 3);
        errno = 4711;
        assert_ptr_equal(hakmem_resize(blocks[i], 300000), blocks[i]);
        assert_int_equal(errno, 4711);
        check_marked(blocks[i], 300000, 3);
    }
    // And they grow again within what they kept.
    for (size_t i = 0; i < ARRAY_COUNT(blocks); i++) {
        errno = 4711;
        assert_ptr_equal(hakmem_resize(blocks[i], 400000), blocks[i]);
        assert_int_equal(errno, 4711);
        check_marked(blocks[i], 300000, 3);
    }
    assert_int_equal(counted(COUNTER_failures), failures);
    for (size_t i = 0; i < ARRAY_COUNT(blocks); i++) {
        dealloc_sized(blocks[i], BLOCK_ALIGN, 400000);
    }
    check();
}

// A block that grows bit by bit gets room for more; where there is none, what it asks for.
static void test_growth_does_without_its_room(void **state) {
    (void)state;
    static const size_t grown = 1200, roomy = 1440;
    char *block = hakmem_alloc(1152);
    mark(block, 1152, 5);
    char *fitting = hakmem_alloc(grown);
    fake_os_fail(FAKE_ANY, 1, true);
    while (hakmem_alloc(roomy) != NULL) {
    }
    while (hakmem_alloc(grown) != NULL) {
    }
    const uint64_t failures = counted(COUNTER_failures);
    assert_null(hakmem_resize(block, grown));
    assert_int_equal(counted(COUNTER_failures), failures + 1);
    hakmem_dealloc(fitting);
    errno = 4711;
    char *moved = hakmem_resize(block, grown);
    assert_ptr_equal(moved, fitting);
    assert_int_equal(errno, 4711);
    assert_int_equal(counted(COUNTER_failures), failures + 1);
    check_marked(moved, 1152, 5);
    check();
}

static void test_huge_blocks_grow_without_copying(void **state) {
    (void)state;
    char *block = hakmem_alloc(4 * MIB);
    mark(block, 4 * MIB, 1);
    for (size_t bytes = 5 * MIB; bytes <= 40 * MIB; bytes += MIB) {
        if (bytes % (4 * MIB) == 0) {
            fake_os_block_behind(block);
        }
        block = hakmem_resize(block, bytes);
        assert_non_null(block);
        check_marked(block, bytes - MIB, 1);
        mark(block, bytes, 1);
    }
    assert_true(counted(COUNTER_huge_moves) >= 9);
    assert_int_equal(counted(COUNTER_huge_allocs), 1);
    check();
}

// The system does not lengthen it; and what is left of it may be no huge block.
static void test_huge_blocks_that_cannot_stay_are_copied(void **state) {
    (void)state;
    char *block = hakmem_alloc(4 * MIB);
    mark(block, 4 * MIB, 1);
    fake_os_fail(OS_MREMAP, 1, true);
    block = hakmem_resize(block, 8 * MIB);
    assert_true(hakmem_block_bytes(block) >= 8 * MIB);
    check_marked(block, 4 * MIB, 1);
    fake_os_mend();
    block = hakmem_resize(block, 100);
    assert_in_range(hakmem_block_bytes(block), 100, 128);
    check_marked(block, 100, 1);
    check();
}

// ---- Misuse ----

static uint64_t misuses;

// The call is reported with this text, ignored, and the heap is sound.
#define expect_report(call, text)                              \
    do {                                                       \
        stderr_begin();                                        \
        call;                                                  \
        const char *line = stderr_end();                       \
        if (strstr(line, (text)) == NULL) {                    \
            fail_msg("said '%s', not '%s'", line, (text));     \
        }                                                      \
        assert_int_equal(counted(COUNTER_misuses), ++misuses); \
        check();                                               \
    } while (0)

static void test_sizes_of_what_is_no_block_in_use(void **state) {
    (void)state;
    options.abort = 0;
    char *blocks[100];
    for (unsigned i = 0; i < 2 * ARRAY_COUNT(blocks); i++) {
        if (i >= ARRAY_COUNT(blocks)) {
            hakmem_dealloc(blocks[i % ARRAY_COUNT(blocks)]);
        }
        blocks[i % ARRAY_COUNT(blocks)] = hakmem_alloc(240);
    }
    char *const block = blocks[50];
    expect_report(assert_int_equal(hakmem_block_bytes(block + 16), 0),
                  "lies 16 bytes inside the 240-byte");
    // What is left behind the last block of the slab.
    const uintptr_t slab = align_down((uintptr_t)block, PAGE_BYTES);
    const size_t held = PAGE_BYTES / 240 * 240;
    expect_report(assert_int_equal(hakmem_block_bytes((void *)(slab + held)), 0),
                  "invalid malloc_usable_size");
    // Freed just now, and seven frees ago.
    for (unsigned i = 0; i < 8; i++) {
        hakmem_dealloc(blocks[i]);
        expect_report(assert_int_equal(hakmem_block_bytes(blocks[i]), 0), "of a freed block: 0x");
    }
    expect_report(assert_int_equal(hakmem_block_bytes(blocks[0]), 0), "of a freed block: 0x");
    // In the order in which the slots of the node still hold them from before.
    for (unsigned i = 20; i-- > 10;) {
        hakmem_dealloc(blocks[i]);
        expect_report(assert_int_equal(hakmem_block_bytes(blocks[i]), 0), "of a freed block: 0x");
    }
    // That the caches of this thread are full of them makes no difference to the others.
    assert_int_equal(hakmem_block_bytes(blocks[8]), 240);
    assert_int_equal(hakmem_block_bytes(NULL), 0);
}

static void test_misuse_is_reported_and_ignored(void **state) {
    (void)state;
    char *small = hakmem_alloc(100);
    char *large = hakmem_alloc(100000);
    char *huge = hakmem_alloc(5 * MIB);
    options.abort = 0;
    misuses = 0;
    int local = 0;
    char *const high = (char *)((uintptr_t)9 << (ADDRESS_BITS - 3));
    expect_report(hakmem_dealloc(high), "000000 is above the ");
    // The top byte is not the processor's on every machine, but never this heap's.
    char *const tagged = (char *)((uintptr_t)small | (uintptr_t)1 << 56);
    expect_report(hakmem_dealloc(tagged), "-bit address space");
    expect_report(hakmem_dealloc(&local), "is not from this heap");
    expect_report(hakmem_dealloc((void *)16), "nothing is mapped there");
    expect_report(hakmem_dealloc(large + 16), "lies 16 bytes inside the large block of ");
    expect_report(hakmem_dealloc(large + 65536), "lies 65536 bytes inside the large block of ");
    expect_report(hakmem_dealloc(huge + 4096), "lies 4096 bytes inside the huge block of ");
    expect_report(assert_int_equal(hakmem_block_bytes(small + 1), 0), "invalid malloc_usable_size");
    expect_report(assert_int_equal(hakmem_block_bytes(&local), 0), "invalid malloc_usable_size");
    expect_report(assert_null(hakmem_resize(small + 16, 10)), "lies 16 bytes inside the 112-byte");
    expect_report(assert_null(hakmem_resize(huge + 16, 10)), "invalid realloc");
    hakmem_dealloc(large);
    expect_report(hakmem_dealloc(large), "double free: 0x");
    expect_report(assert_int_equal(hakmem_block_bytes(large), 0), "of a freed block: 0x");
    hakmem_dealloc(huge);
    expect_report(hakmem_dealloc(huge), "double free: 0x");
    maintenance_reclaim();
    expect_report(hakmem_dealloc(huge), "hakmem: ");
    // The first frees of a class are checked at once; later ones meet the bitmap when the cache is
    // emptied.
    expect_report(hakmem_dealloc(small + 16), "lies 16 bytes inside the 112-byte");
    hakmem_dealloc(small);
    expect_report(hakmem_dealloc(small), "double free: 0x");
    options.watched_operations = 0;
    small = hakmem_alloc(100);
    hakmem_dealloc(small);
    hakmem_dealloc(small);
    expect_report(cache_empty(thread_cache), "double free: 0x");
    assert_int_equal(hakmem_block_bytes(NULL), 0);
}

static void test_hardened_mode_notices_at_once(void **state) {
    (void)state;
    setenv("HAKMEM_MODE", "hardened", 1);
    char *small = hakmem_alloc(100);
    char *sized = hakmem_alloc(100);
    options.abort = 0;
    misuses = 0;
    expect_report(hakmem_dealloc(small + 16), "lies 16 bytes inside the 100-byte block (class ");
    expect_report(dealloc_sized(sized, 16, 99), "with 100 bytes, not 99");
    dealloc_sized(sized, 16, 100);
    expect_report(dealloc_sized(sized, 16, 100), "double free: 0x");
    memset(small, 5, 100);
    hakmem_dealloc(small);
    expect_report(hakmem_dealloc(small), "double free: 0x");
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(small[i], 0);
    }
}

// Blocks of a size come in random order there: of those below the highest most were never handed out.
static void test_hardened_mode_tells_what_it_never_handed_out(void **state) {
    (void)state;
    setenv("HAKMEM_MODE", "hardened", 1);
    setenv("HAKMEM_GUARD_SAMPLE", "0", 1);
    char *block = hakmem_alloc(100);
    for (unsigned i = 0; i < 20; i++) {
        assert_non_null(hakmem_alloc(100));
    }
    const struct run *slab = slab_find((uintptr_t)block);
    unsigned index = 0;
    while (!slab_holds(slab, index)) {
        index++;
    }
    assert_true(index < slab->fresh_index);
    void *const never = (void *)slab_block(slab, index);
    options.abort = 0;
    misuses = 0;
    expect_report(hakmem_dealloc(never), "invalid free: 0x");
    expect_report(hakmem_dealloc(never), "never handed out");
    expect_report(assert_null(hakmem_resize(never, 10)), "invalid realloc: 0x");
    hakmem_dealloc(block);
    expect_report(hakmem_dealloc(block), "double free: 0x");
}

// As SECURITY.md says of malloc_trim, and of memory that the system refuses.
static void test_reclaiming_ends_the_quarantine(void **state) {
    (void)state;
    setenv("HAKMEM_MODE", "hardened", 1);
    setenv("HAKMEM_GUARD_SAMPLE", "0", 1);
    char *kept = hakmem_alloc(100);  // its slab stays
    char *block = hakmem_alloc(100);
    const struct run *slab = slab_find((uintptr_t)block);
    const unsigned index = (unsigned)slab_index(slab, (uintptr_t)block);
    hakmem_dealloc(block);
    assert_true(slab_is_quarantined(slab, index));
    maintenance_reclaim();
    assert_false(slab_is_quarantined(slab, index));
    hakmem_dealloc(kept);
}

// A huge block that comes and goes is not mapped anew each time, whatever the mode but hardened.
static void test_lean_mode_keeps_a_huge_block(void **state) {
    (void)state;
    setenv("HAKMEM_MODE", "lean", 1);
    hakmem_dealloc(hakmem_alloc(3 * MIB));
    const uint64_t mapped = fake_os_calls(OS_MMAP) + fake_os_calls(OS_MREMAP);
    for (unsigned i = 0; i < 100; i++) {
        hakmem_dealloc(hakmem_alloc(3 * MIB));
    }
    assert_in_range(fake_os_calls(OS_MMAP) + fake_os_calls(OS_MREMAP) - mapped, 0, 10);
}

static int free_twice(const void *context) {
    (void)context;
    void *block = hakmem_alloc(100000);
    hakmem_dealloc(block);
    hakmem_dealloc(block);
    return 0;
}

static void test_misuse_aborts(void **state) {
    (void)state;
    expect_abort(free_twice);
}

// ---- Every kind of machine, every mode ----

static void run_workload(void) {
    struct workload workload;
    workload_start(&workload, test_seed(), 6 * MIB);
    workload_run(&workload, 6000);
    assert_int_equal(workload.refused, 0);
    workload_check();
    workload_free_all();
    maintenance_reclaim();
    maintenance_reclaim();
    struct stats stats;
    stats_collect(&stats);
    assert_int_equal(stats.gauge[GAUGE_live_bytes], 0);
    assert_int_equal(stats.gauge[GAUGE_slab_bytes], 0);
    assert_int_equal(stats.counter[COUNTER_misuses], 0);
    assert_true(stats.gauge[GAUGE_mapped_bytes] <= SUPERSLAB_BYTES);
    check();
}

static void test_workload_fast(void **state) {
    (void)state;
    run_workload();
}

static void test_workload_lean(void **state) {
    (void)state;
    setenv("HAKMEM_MODE", "lean", 1);
    run_workload();
}

static void test_workload_hardened(void **state) {
    (void)state;
    setenv("HAKMEM_MODE", "hardened", 1);
    run_workload();
}

static void test_workload_research(void **state) {
    (void)state;
    setenv("HAKMEM_MODE", "research", 1);
    run_workload();
    assert_true(counted(COUNTER_mallocs_seen) > 1000);
    assert_true(counted(COUNTER_frees_seen) > 1000);
}

static void test_workload_fallback_map(void **state) {
    (void)state;
    fake_os_fail(OS_MMAP, 1, false);
    lifecycle_start();
    run_workload();
    assert_int_equal(fake_os_bytes(FAKE_READABLE), 0);
}

static void test_workload_with_pages_of_16_kib(void **state) {
    (void)state;
    fake_os_set_page_bytes(16 * KIB);
    run_workload();
}

static void test_workload_with_pages_of_64_kib(void **state) {
    (void)state;
    fake_os_set_page_bytes(64 * KIB);
    setenv("HAKMEM_MODE", "hardened", 1);
    run_workload();
}

static void test_workload_checked_all_the_time(void **state) {
    (void)state;
    setenv("HAKMEM_CHECK", "1", 1);
    setenv("HAKMEM_PURGE_DELAY_MS", "0", 1);
    setenv("HAKMEM_CACHE_CLASS_BYTES", "0", 1);
    run_workload();
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_small_size),
        cmocka_unit_test(test_sizes_of_blocks_in_use),
        cmocka_unit_test(test_sizes_of_what_is_no_block_in_use),
        cmocka_unit_test(test_two_blocks_of_no_bytes_differ),
        cmocka_unit_test(test_free_leaves_errno_alone),
        cmocka_unit_test(test_success_leaves_errno_alone),
        cmocka_unit_test(test_impossible_sizes),
        cmocka_unit_test(test_impossible_sizes_give_nothing_back),
        cmocka_unit_test(test_reclaims_when_refused),
        cmocka_unit_test(test_growth_lets_kept_mappings_go),
        cmocka_unit_test(test_kept_mappings_go_before_a_larger_one_comes),
        cmocka_unit_test(test_zeroed_memory),
        cmocka_unit_test(test_resize_keeps_contents_between_all_kinds),
        cmocka_unit_test(test_resize_edge_cases),
        cmocka_unit_test(test_books_are_written_once_for_each_early_slow_path),
        cmocka_unit_test(test_refused_shrink_keeps_the_block),
        cmocka_unit_test(test_refused_shrink_in_hardened_mode),
        cmocka_unit_test(test_growth_does_without_its_room),
        cmocka_unit_test(test_huge_blocks_grow_without_copying),
        cmocka_unit_test(test_huge_blocks_that_cannot_stay_are_copied),
        cmocka_unit_test(test_misuse_is_reported_and_ignored),
        cmocka_unit_test(test_hardened_mode_notices_at_once),
        cmocka_unit_test(test_hardened_mode_tells_what_it_never_handed_out),
        cmocka_unit_test(test_reclaiming_ends_the_quarantine),
        cmocka_unit_test(test_lean_mode_keeps_a_huge_block),
        cmocka_unit_test(test_misuse_aborts),
        cmocka_unit_test(test_workload_fast),
        cmocka_unit_test(test_workload_lean),
        cmocka_unit_test(test_workload_hardened),
        cmocka_unit_test(test_workload_research),
        cmocka_unit_test(test_workload_fallback_map),
        cmocka_unit_test(test_workload_with_pages_of_16_kib),
        cmocka_unit_test(test_workload_with_pages_of_64_kib),
        cmocka_unit_test(test_workload_checked_all_the_time),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
