// Every system call of a workload fails in turn, once and from then on. Requests then end in NULL and
// ENOMEM or succeed; nothing is damaged, and when the fault is lifted everything works and nothing is
// lost. Each failure happens in a process of its own.
#include "isolate.h"

#include <stdlib.h>

#include "api/alloc.h"
#include "base/bits.h"
#include "control/check.h"
#include "control/stats.h"
#include "fake_os.h"
#include "heap/huge.h"
#include "space/metadata.h"
#include "space/page_map.h"
#include "thread/lifecycle.h"
#include "thread/maintenance.h"
#include "workload.h"

// The status of a scenario.
enum { FAULT_STRUCK = 0, FAULT_NOT_REACHED = 1 };

// Every STRIDEth call after the first ones (cmake/Testing.cmake).
#define FIRST_ONES (40 / STRIDE + 4)

#define BYTES_MAX (3 * MIB)

struct fault {
    const char *mode;         // HAKMEM_MODE, or NULL
    const char *purge_delay;  // HAKMEM_PURGE_DELAY_MS, or NULL
    size_t page_bytes;
    size_t bytes_max;  // 0: BYTES_MAX
    bool fallback_map;
    uint64_t seed;
    enum os_call kind;
    uint64_t nth;
    bool from_then_on;
};

static void configure(const struct fault *fault) {
    if (fault->mode != NULL) {
        setenv("HAKMEM_MODE", fault->mode, 1);
    }
    if (fault->purge_delay != NULL) {
        setenv("HAKMEM_PURGE_DELAY_MS", fault->purge_delay, 1);
    }
    if (fault->page_bytes != 0) {
        fake_os_set_page_bytes(fault->page_bytes);
    }
    if (fault->fallback_map) {
        fake_os_fail(OS_MMAP, 1, false);
        lifecycle_start();
        require(page_map_flat == NULL);
    }
}

// With all blocks freed and everything reclaimed, only what is kept for the next request is mapped:
// one superslab, the opened parts of the page map, and metadata.
static void require_nothing_lost(size_t leftover_bytes) {
    maintenance_reclaim();
    // Frees of other threads reach their heaps one reclaim, and one hand-over, later.
    maintenance_reclaim();
    require(check_all() == 0);
    struct stats stats;
    stats_collect(&stats);
    require(stats.gauge[GAUGE_live_blocks] == 0);
    require(stats.gauge[GAUGE_live_bytes] == 0);
    require(stats.gauge[GAUGE_cached_bytes] == 0);
    require(stats.gauge[GAUGE_slab_bytes] == 0);
    require(stats.gauge[GAUGE_dirty_bytes] == 0);
    require(stats.gauge[GAUGE_huge_cached_bytes] == 0);
    require(stats.gauge[GAUGE_mapped_bytes] <= SUPERSLAB_BYTES);
    const size_t mapped = fake_os_bytes(FAKE_WRITABLE) + fake_os_bytes(FAKE_INACCESSIBLE);
    // A mapping of metadata is 256 KiB; a part of the page map is 64 KiB.
    const size_t most = stats.gauge[GAUGE_mapped_bytes] +
                        align_up(stats.gauge[GAUGE_metadata_bytes], 256 * KIB) + 768 * KIB;
    require(mapped <= most + leftover_bytes);
}

static int strike(const void *context) {
    const struct fault *fault = context;
    configure(fault);
    const uint64_t struck_before = fake_os_struck();
    struct workload workload;
    workload_start(&workload, fault->seed, fault->bytes_max != 0 ? fault->bytes_max : BYTES_MAX);
    fake_os_fail(fault->kind, fault->nth, fault->from_then_on);
    workload_run(&workload, 600);
    const bool struck = fake_os_struck() != struck_before;
    workload_check();
    // A single refused call is made up for: by trying again, or by doing without.
    require(fault->from_then_on || workload.refused == 0);
    fake_os_mend();

    workload.refused = 0;
    workload_run(&workload, 200);
    require(workload.refused == 0);
    workload_check();
    require(workload_live_count() > 0);
    workload_free_all();
    // What the system would not take back in the middle of a failed request may stay: a superslab,
    // or the place that a huge block did not move to, for each request.
    require_nothing_lost(fault->from_then_on ? 64 * MIB : 0);
    return struck ? FAULT_STRUCK : FAULT_NOT_REACHED;
}

// Every call from the first on, until the workload makes no more of them.
static void strike_each_call(struct fault fault) {
    fault.seed = test_seed();
    uint64_t struck = 0;
    for (fault.nth = 1;; fault.nth += fault.nth < FIRST_ONES ? 1 : STRIDE) {
        if (run_scenario(strike, &fault) == FAULT_NOT_REACHED) {
            break;
        }
        struck++;
    }
    print_message("%llu calls of kind %d\n", (unsigned long long)fault.nth - 1, (int)fault.kind);
    assert_true(struck > 0);
}

static void strike_in_every_way(struct fault fault) {
    fault.kind = FAKE_ANY;
    fault.from_then_on = false;
    strike_each_call(fault);
    fault.from_then_on = true;
    strike_each_call(fault);
}

static void test_fast(void **state) {
    (void)state;
    strike_in_every_way((struct fault){0});
}

static void test_fast_with_huge_blocks(void **state) {
    (void)state;
    strike_in_every_way((struct fault){.bytes_max = 12 * MIB});
}

static void test_lean_without_delay(void **state) {
    (void)state;
    strike_in_every_way((struct fault){.mode = "lean", .purge_delay = "0"});
}

static void test_hardened(void **state) {
    (void)state;
    strike_in_every_way((struct fault){.mode = "hardened"});
}

static void test_fallback_map(void **state) {
    (void)state;
    strike_in_every_way((struct fault){.fallback_map = true});
}

static void test_large_machine_pages(void **state) {
    (void)state;
    strike_in_every_way((struct fault){.page_bytes = 64 * KIB});
}

// One kind of call never works again, as under a filter of system calls.
static void strike_kind(enum os_call kind) {
    static const char *const modes[] = {"fast", "hardened"};
    for (size_t i = 0; i < ARRAY_COUNT(modes); i++) {
        struct fault fault = {.mode = modes[i], .kind = kind, .from_then_on = true};
        fault.seed = test_seed();
        for (fault.nth = 1; fault.nth <= 81; fault.nth += 20) {
            run_scenario(strike, &fault);
        }
    }
}

static void test_no_mmap(void **state) {
    (void)state;
    strike_kind(OS_MMAP);
}

static void test_no_munmap(void **state) {
    (void)state;
    strike_kind(OS_MUNMAP);
}

static void test_no_mprotect(void **state) {
    (void)state;
    strike_kind(OS_MPROTECT);
}

static void test_no_madvise(void **state) {
    (void)state;
    strike_kind(OS_MADVISE);
}

static void test_no_mremap(void **state) {
    (void)state;
    strike_kind(OS_MREMAP);
}

// ---- Limits of the machine ----

struct limit {
    size_t bytes, ranges;
    uint64_t seed;
};

static int run_within(const void *context) {
    const struct limit *limit = context;
    fake_os_limit_bytes(limit->bytes);
    fake_os_limit_ranges(limit->ranges);
    struct workload workload;
    workload_start(&workload, limit->seed, BYTES_MAX);
    workload_run(&workload, 1000);
    workload_check();
    fake_os_limit_bytes(0);
    fake_os_limit_ranges(0);
    workload.refused = 0;
    workload_run(&workload, 200);
    require(workload.refused == 0);
    workload_check();
    workload_free_all();
    require_nothing_lost(0);
    return 0;
}

static void test_little_address_space(void **state) {
    (void)state;
    struct limit limit = {.seed = test_seed()};
    for (limit.bytes = MIB; limit.bytes <= 256 * MIB; limit.bytes = limit.bytes * 3 / 2) {
        run_scenario(run_within, &limit);
        // The same beside the reservation of the page map.
        limit.bytes += PAGE_MAP_BYTES;
        run_scenario(run_within, &limit);
        limit.bytes -= PAGE_MAP_BYTES;
    }
}

static void test_few_mappings(void **state) {
    (void)state;
    struct limit limit = {.seed = test_seed()};
    for (limit.ranges = 1; limit.ranges <= 40; limit.ranges += least_u64((STRIDE + 1) / 2, 8)) {
        run_scenario(run_within, &limit);
    }
}

// ---- Controls: what these tests must notice ----

enum planted { PLANTED_NOTHING, LEAKED_BLOCK, LEAKED_LARGE, LEAKED_MAPPING, DAMAGED };

static int plant(const void *context) {
    const enum planted planted = *(const enum planted *)context;
    struct workload workload;
    workload_start(&workload, 1, BYTES_MAX);
    workload_run(&workload, 300);
    switch (planted) {
    case LEAKED_BLOCK:
        require(hakmem_alloc(16) != NULL);
        break;
    case LEAKED_LARGE:
        require(hakmem_alloc(100000) != NULL);
        break;
    case LEAKED_MAPPING:
        require(os_map(SUPERSLAB_BYTES, SUPERSLAB_BYTES) != NULL);
        break;
    case DAMAGED:
        workload_damage();
        break;
    case PLANTED_NOTHING:
        break;
    }
    workload_check();
    workload_free_all();
    require_nothing_lost(0);
    return 0;
}

static void test_controls(void **state) {
    (void)state;
    enum planted planted = PLANTED_NOTHING;
    assert_int_equal(run_scenario(plant, &planted), 0);
    for (planted = LEAKED_BLOCK; planted <= DAMAGED; planted++) {
        expect_failure(plant, &planted);
    }
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fast),
        cmocka_unit_test(test_fast_with_huge_blocks),
        cmocka_unit_test(test_lean_without_delay),
        cmocka_unit_test(test_hardened),
        cmocka_unit_test(test_fallback_map),
        cmocka_unit_test(test_large_machine_pages),
        cmocka_unit_test(test_no_mmap),
        cmocka_unit_test(test_no_munmap),
        cmocka_unit_test(test_no_mprotect),
        cmocka_unit_test(test_no_madvise),
        cmocka_unit_test(test_no_mremap),
        cmocka_unit_test(test_little_address_space),
        cmocka_unit_test(test_few_mappings),
        cmocka_unit_test(test_controls),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
