// Frees with every check, and blocks that are held back before they are used again.
#include "isolate.h"

#include <string.h>

#include "base/bits.h"
#include "config/options.h"
#include "fake_os.h"
#include "found_slab.h"
#include "heap/heap.h"
#include "heap/heap_check.h"
#include "heap/quarantine.h"
#include "heap/slab.h"
#include "space/page_map.h"

static struct heap heap;

static void start(void) {
    page_map_init();
    heap_init(&heap, 2);
}

static void check(void) {
    assert_int_equal(heap_check(&heap), 0);
    assert_int_equal(arena_check(), 0);
}

static void take(uint64_t class_index, unsigned count, void **blocks) {
    assert_int_equal(heap_take(&heap, class_index, count, blocks), count);
}

static void *take_one(uint64_t class_index) {
    void *block;
    take(class_index, 1, &block);
    return block;
}

static uint64_t misuses(void) {
    return atomic_load_relaxed(&process_counters.value[COUNTER_misuses]);
}

static void free_checked(void *block) {
    heap_free_checked(&heap, slab_of(block), block);
}

static bool is_held_back(void *block) {
    const struct run *slab = slab_of(block);
    return slab_is_quarantined(slab, (unsigned)slab_index(slab, (uintptr_t)block));
}

static void test_quarantine_delays_reuse(void **state) {
    (void)state;
    options.quarantine_blocks = 16;
    start();
    void *blocks[40];
    take(SIZE_CLASS_64, 40, blocks);
    for (unsigned i = 0; i < 40; i++) {
        free_checked(blocks[i]);
        for (unsigned n = 0; n < 40; n++) {
            assert_int_equal(is_held_back(blocks[n]), n <= i && n + 16 > i);
        }
        assert_int_equal(slab_of(blocks[0])->free_count, 1024 - 40 + (i < 16 ? 0 : i - 15));
    }
    check();
}

// What tells which blocks are held back is part of a piece that other slabs had before.
static void test_quarantine_of_a_new_slab_is_empty(void **state) {
    (void)state;
    options.quarantine_blocks = 16;
    options.retain_slabs = 0;
    start();
    enum { COUNT = 128 };  // two words
    void *blocks[COUNT];
    for (unsigned round = 0; round < 3; round++) {
        take(SIZE_CLASS_256, COUNT, blocks);
        const struct run *slab = slab_of(blocks[0]);
        for (unsigned i = 0; i < COUNT; i++) {
            assert_false(is_held_back(blocks[i]));
        }
        for (unsigned i = 0; i < COUNT; i++) {
            free_checked(blocks[i]);
        }
        heap_end_quarantine(&heap);
        assert_int_equal(heap.bins[SIZE_CLASS_256].slab_count, 0);
        // The piece as slabs that came between might leave it.
        for (unsigned w = 0; w < slab_words(slab); w++) {
            atomic_store_relaxed(&slab_quarantined(slab)[w], UINT64_MAX);
        }
    }
    check();
}

static void test_large_small_blocks_skip_the_quarantine(void **state) {
    (void)state;
    options.quarantine_blocks = 16;
    start();
    void *block = take_one(SIZE_CLASS_8192);
    free_checked(block);
    assert_false(is_held_back(block));
}

static void test_freed_memory_is_cleared(void **state) {
    (void)state;
    options.zero_on_free = 1;
    start();
    unsigned char *block = take_one(SIZE_CLASS_256);
    memset(block, 7, 256);
    free_checked(block);
    for (unsigned i = 0; i < 256; i++) {
        assert_int_equal(block[i], 0);
    }
}

static void test_checked_frees_notice_misuse(void **state) {
    (void)state;
    options.quarantine_blocks = 16;
    options.abort = 0;
    start();
    stderr_begin();
    char *block = take_one(SIZE_CLASS_64);
    char *published = take_one(SIZE_CLASS_64);
    free_checked(block + 8);
    free_checked(block);
    free_checked(block);  // still held back
    struct run *slab = slab_of(published);
    const int index = slab_index(slab, (uintptr_t)published);
    heap_publish(slab, (unsigned)index / 64, bit((unsigned)index % 64));
    free_checked(published);
    for (unsigned i = 0; i < 16; i++) {
        free_checked(take_one(SIZE_CLASS_128));
    }
    free_checked(block);  // held by the slab again
    assert_int_equal(misuses(), 4);
    heap_collect(&heap);
    assert_non_null(strstr(stderr_end(), "double free: 0x"));
    check();
}

static void test_no_memory_for_the_quarantine(void **state) {
    (void)state;
    options.quarantine_blocks = 256;
    page_map_init();
    fake_os_fail(OS_MMAP, 1, false);
    heap_init(&heap, 2);
    assert_null(heap.quarantine);
    void *block = take_one(SIZE_CLASS_64);
    free_checked(block);
    assert_false(is_held_back(block));
    assert_ptr_equal(take_one(SIZE_CLASS_64), block);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quarantine_delays_reuse),
        cmocka_unit_test(test_quarantine_of_a_new_slab_is_empty),
        cmocka_unit_test(test_large_small_blocks_skip_the_quarantine),
        cmocka_unit_test(test_freed_memory_is_cleared),
        cmocka_unit_test(test_checked_frees_notice_misuse),
        cmocka_unit_test(test_no_memory_for_the_quarantine),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
