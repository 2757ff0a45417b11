// The books: every block is live, cached or free, and the sums agree.
#include "isolate.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/alloc.h"
#include "base/bits.h"
#include "config/options.h"
#include "control/stats.h"
#include "fake_os.h"
#include "hakmem.h"
#include "thread/lifecycle.h"
#include "thread/maintenance.h"

enum { BLOCK_COUNT = 3000 };

static void *blocks[BLOCK_COUNT];
static size_t block_count, block_bytes;

static void remember(void *block) {
    assert_non_null(block);
    blocks[block_count++] = block;
    block_bytes += hakmem_block_bytes(block);
}

static void forget(void) {
    void *block = blocks[--block_count];
    block_bytes -= hakmem_block_bytes(block);
    hakmem_dealloc(block);
}

static void check_equations(void) {
    struct stats stats;
    stats_collect(&stats);
    uint64_t tails = 0;
    for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        const struct stats_class *class = &stats.class[i];
        const size_t slab = size_classes[i].slab_pages * PAGE_BYTES;
        assert_int_equal(class->block_bytes, size_classes[i].block_bytes);
        assert_int_equal(class->slab_bytes % slab, 0);
        const uint64_t slabs = class->slab_bytes / slab;
        assert_int_equal(class->live_blocks + class->cached_blocks + class->free_blocks,
                         slabs * size_classes[i].block_count);
        tails += slabs * (slab - size_classes[i].block_count * class->block_bytes);
    }
    const uint64_t *gauge = stats.gauge;
    // live + cached + free + tails == slab bytes, the blocks that are no slab's added.
    assert_int_equal(gauge[GAUGE_live_bytes] + gauge[GAUGE_cached_bytes] +
                         gauge[GAUGE_slab_free_bytes] + tails,
                     gauge[GAUGE_slab_bytes] + gauge[GAUGE_large_bytes] + gauge[GAUGE_huge_bytes]);
    assert_int_equal(gauge[GAUGE_live_blocks], block_count);
    assert_int_equal(gauge[GAUGE_live_bytes], block_bytes);
    assert_true(gauge[GAUGE_mapped_bytes_max] >= gauge[GAUGE_mapped_bytes]);
    assert_true(gauge[GAUGE_mapped_bytes] >= gauge[GAUGE_live_bytes] + gauge[GAUGE_dirty_bytes]);
    // What is mapped besides is the allocator's own.
    assert_true(fake_os_bytes(FAKE_WRITABLE) + fake_os_bytes(FAKE_INACCESSIBLE) >=
                gauge[GAUGE_mapped_bytes]);
    assert_true(gauge[GAUGE_metadata_bytes] > 0);
    // Blocks moved between caches and slabs: what was refilled, and neither flushed nor sent to another heap, is out.
    if (!options.immediate_double_free) {
        uint64_t out = 0;
        for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
            out += stats.class[i].live_blocks + stats.class[i].cached_blocks;
        }
        assert_int_equal(stats.counter[COUNTER_refilled_blocks] -
                             stats.counter[COUNTER_flushed_blocks] -
                             stats.counter[COUNTER_remote_blocks],
                         out);
    }
    struct hakmem_totals totals;
    hakmem_totals(&totals);
    assert_int_equal(totals.live_bytes, gauge[GAUGE_live_bytes]);
    assert_int_equal(totals.live_blocks, gauge[GAUGE_live_blocks]);
    assert_int_equal(totals.cached_bytes, gauge[GAUGE_cached_bytes]);
    assert_int_equal(totals.free_bytes, gauge[GAUGE_slab_free_bytes]);
    assert_int_equal(totals.mapped_bytes, gauge[GAUGE_mapped_bytes]);
}

static void random_blocks(void) {
    uint64_t random_state = test_seed();
    for (unsigned n = 0; n < 8000; n++) {
        const uint64_t dice = random_next(&random_state);
        if (block_count < BLOCK_COUNT && (dice % 16 < 9 || block_count == 0)) {
            const size_t most = dice >> 8 & 31 ? 3000 : dice >> 16 & 7 ? 100000 : 5 * MIB;
            remember(hakmem_alloc(random_next(&random_state) % most));
        } else if (dice % 16 < 15) {
            forget();
        } else {
            const size_t place = random_next(&random_state) % block_count;
            void *last = blocks[block_count - 1];
            blocks[block_count - 1] = blocks[place];
            blocks[place] = last;
        }
        if (n % 64 == 0) {
            check_equations();
        }
    }
    while (block_count > 0) {
        forget();
    }
    check_equations();
    maintenance_reclaim();
    check_equations();
}

static void test_equations_fast(void **state) {
    (void)state;
    random_blocks();
}

static void test_equations_lean(void **state) {
    (void)state;
    setenv("HAKMEM_MODE", "lean", 1);
    random_blocks();
}

static void test_equations_research(void **state) {
    (void)state;
    setenv("HAKMEM_MODE", "research", 1);
    random_blocks();
}

static void test_equations_checked(void **state) {
    (void)state;
    setenv("HAKMEM_IMMEDIATE_DOUBLE_FREE", "1", 1);
    setenv("HAKMEM_GUARD_GAPS", "1", 1);
    random_blocks();
}

static void *allocate_elsewhere(void *argument) {
    for (unsigned i = 0; i < 500; i++) {
        void **place = &((void **)argument)[i];
        *place = hakmem_alloc(i);
        require(*place != NULL);
    }
    return NULL;
}

static void test_blocks_of_an_ended_thread_are_live(void **state) {
    (void)state;
    static void *made[500];
    lifecycle_attach();
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, allocate_elsewhere, made), 0);
    pthread_join(thread, NULL);
    for (unsigned i = 0; i < 500; i++) {
        remember(made[i]);
    }
    check_equations();
    // Blocks freed by another thread are free, also while they wait for their owner.
    for (unsigned i = 0; i < 500; i++) {
        hakmem_dealloc(made[i]);
    }
    block_count = block_bytes = 0;
    check_equations();
    cache_empty(thread_cache);
    check_equations();
    struct stats stats;
    stats_collect(&stats);
    assert_int_not_equal(stats.counter[COUNTER_remote_blocks],
                         stats.counter[COUNTER_remote_collected]);
    maintenance_reclaim();
    check_equations();
}

static void test_system_calls_are_counted(void **state) {
    (void)state;
    hakmem_dealloc(hakmem_alloc(5 * MIB));
    maintenance_reclaim();
    struct stats stats;
    stats_collect(&stats);
    assert_int_equal(stats.counter[COUNTER_os_mmap], fake_os_calls(OS_MMAP));
    assert_int_equal(stats.counter[COUNTER_os_munmap], fake_os_calls(OS_MUNMAP));
    assert_int_equal(stats.counter[COUNTER_os_mprotect], fake_os_calls(OS_MPROTECT));
    assert_int_equal(stats.counter[COUNTER_os_madvise], fake_os_calls(OS_MADVISE));
    assert_int_equal(stats.counter[COUNTER_os_failures], fake_os_refused());
    assert_true(stats.counter[COUNTER_os_mmap] >= 3);
    assert_int_equal(stats.counter[COUNTER_huge_allocs], 1);
    assert_int_equal(stats.counter[COUNTER_huge_frees], 1);
}

static void test_peak_of_mapped_bytes(void **state) {
    (void)state;
    void *block = hakmem_alloc(50 * MIB);
    void *small = hakmem_alloc(100);
    hakmem_dealloc(block);
    maintenance_reclaim();
    struct stats stats;
    stats_collect(&stats);
    assert_int_equal(stats.gauge[GAUGE_mapped_bytes], SUPERSLAB_BYTES);
    assert_int_equal(stats.gauge[GAUGE_mapped_bytes_max], 50 * MIB + SUPERSLAB_BYTES);
    hakmem_dealloc(small);
}

// Every gauge, and every counter that is not zero, has its line.
static void test_print(void **state) {
    (void)state;
    setenv("HAKMEM_MODE", "research", 1);
    for (unsigned i = 0; i < 1000; i++) {
        remember(hakmem_alloc(i * 20));
    }
    remember(hakmem_alloc(100000));
    struct stats stats;
    stats_collect(&stats);
    stderr_begin();
    stats_print(2);
    const char *text = stderr_end();
    char line[128];
#define COUNTER(name, unit, help)                  \
    snprintf(line, sizeof line, "\n  %s ", #name); \
    assert_int_equal(strstr(text, line) != NULL, stats.counter[COUNTER_##name] != 0);
#define GAUGE(name, unit, help)                    \
    snprintf(line, sizeof line, "\n  %s ", #name); \
    assert_non_null(strstr(text, line));
#include "config/counters.def"
    snprintf(line, sizeof line, " %llu bytes\n", (unsigned long long)stats.gauge[GAUGE_live_bytes]);
    assert_non_null(strstr(text, line));
    unsigned lines = 0;
    for (const char *c = text; *c != '\0'; c++) {
        lines += *c == '\n';
    }
    assert_true(lines > GAUGE_COUNT + 40);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equations_fast),
        cmocka_unit_test(test_equations_lean),
        cmocka_unit_test(test_equations_research),
        cmocka_unit_test(test_equations_checked),
        cmocka_unit_test(test_blocks_of_an_ended_thread_are_live),
        cmocka_unit_test(test_system_calls_are_counted),
        cmocka_unit_test(test_peak_of_mapped_bytes),
        cmocka_unit_test(test_print),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
