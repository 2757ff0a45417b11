// Large and huge blocks: runs that all threads share, mappings that grow, shrink, move and are kept.
#include "base/bits.h"
#include "concurrency.h"
#include "heap/huge.h"
#include "heap/large.h"
#include "space/arena.h"
#include "space/arena_purge.h"

static _Atomic(struct block *) slots[64];
static _Atomic(unsigned) workers_left;

static void empty_slots(void) {
    for (unsigned i = 0; i < ARRAY_COUNT(slots); i++) {
        struct block *old = atomic_exchange(&slots[i], NULL);
        if (old != NULL) {
            block_delete(old);
        }
    }
}

static struct block *block_resized(struct block *block, size_t bytes) {
    const uint64_t before = block->bytes;
    struct block *resized = hakmem_resize(block, bytes);
    REQUIRE(resized != NULL);
    REQUIRE(resized->bytes == before);
    // Its first bytes came along; both ends are written anew at the new place.
    const unsigned char *data = (const unsigned char *)(resized + 1);
    for (size_t i = 0; i < 64; i++) {
        REQUIRE(data[i] == block_byte(resized));
    }
    return block_mark(resized, bytes);
}

static size_t random_large_bytes(uint64_t *random) {
    return 70 * KIB + random_below(random, 1900) * KIB;
}

static size_t random_huge_bytes(uint64_t *random) {
    return LARGE_BYTES_MAX + 4 * KIB + random_below(random, 6000) * KIB;
}

// ---- Runs: taken, given, extended and shortened by all threads in the same superslabs

static void share_runs(struct worker *worker) {
    for (unsigned i = 0; i < OPERATIONS(options.zero_on_free ? 2000 : 20000); i++) {
        const unsigned slot = random_below(&worker->random, ARRAY_COUNT(slots));
        struct block *block = block_new(random_large_bytes(&worker->random));
        if (i % 3 == 0) {
            block = block_resized(block, random_large_bytes(&worker->random));
        }
        struct block *old = atomic_exchange_explicit(&slots[slot], block, memory_order_acq_rel);
        if (old != NULL) {
            block_delete(old);
        }
    }
    atomic_fetch_sub(&workers_left, 1);
}

// Purges all the time: pages that are taken out for it must come back.
static void purge_or_share(struct worker *worker) {
    if (worker->index < 3) {
        share_runs(worker);
        return;
    }
    for (uint64_t now_ms = 1; atomic_load(&workers_left) != 0; now_ms += 10000) {
        arena_purge(now_ms, worker->index == 3 ? ARENA_PURGE_ALL : 8 * MIB);
        REQUIRE(arena_check() == 0);
        struct stats stats;
        stats_collect(&stats);
        REQUIRE(stats.gauge[GAUGE_large_bytes] <= stats.gauge[GAUGE_mapped_bytes]);
    }
}

static void test_runs(void **state) {
    (void)state;
    atomic_store(&workers_left, 3);
    run_workers(5, purge_or_share);
    empty_slots();
}

// ---- Mappings: huge blocks beside superslabs, whose addresses pass from one to the other

// Where freed memory is cleared, each takes milliseconds.
static unsigned huge_operations(void) {
    return OPERATIONS(1000) / (options.zero_on_free ? 10 : 1);
}

static void grow_and_shrink(struct worker *worker) {
    for (unsigned i = 0; i < huge_operations(); i++) {
        struct block *block = block_new(random_huge_bytes(&worker->random));
        for (unsigned step = 0; step < 4; step++) {
            block = block_resized(block, random_huge_bytes(&worker->random));
        }
        const unsigned slot = random_below(&worker->random, 8);
        struct block *old = atomic_exchange_explicit(&slots[slot], block, memory_order_acq_rel);
        if (old != NULL) {
            block_delete(old);
        }
    }
}

// Takes superslabs and gives them back to the system.
static void map_and_unmap(struct worker *worker) {
    struct block *blocks[24];
    for (unsigned i = 0; i < huge_operations(); i++) {
        const unsigned count = 4 + random_below(&worker->random, 20);
        for (unsigned k = 0; k < count; k++) {
            blocks[k] = block_new(LARGE_BYTES_MAX - random_below(&worker->random, 64) * KIB);
        }
        for (unsigned k = 0; k < count; k++) {
            block_delete(blocks[k]);
        }
        arena_purge(0, ARENA_PURGE_ALL);
        REQUIRE(huge_check() == 0);
    }
}

static void use_address_space(struct worker *worker) {
    if (worker->index % 2 == 0) {
        grow_and_shrink(worker);
    } else {
        map_and_unmap(worker);
    }
}

static void test_mappings(void **state) {
    (void)state;
    // Nothing is kept: every block is a mapping of its own, every free an unmapping.
    assert_true(options_set("huge_cache_bytes", "0"));
    run_workers(4, use_address_space);
    assert_true(options_set("huge_cache_bytes", "64M"));
    empty_slots();
}

static void test_kept_mappings(void **state) {
    (void)state;
    run_workers(4, grow_and_shrink);
    empty_slots();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_runs, finish_test),
        cmocka_unit_test_teardown(test_mappings, finish_test),
        cmocka_unit_test_teardown(test_kept_mappings, finish_test),
    };
    print_message("seed %llu\n", (unsigned long long)base_seed());
    lifecycle_start();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
