// A refill and a flush touch few words of bitmaps, so that no malloc and no free takes long.
#include "isolate.h"

#include <string.h>

#include "base/bits.h"
#include "config/options.h"
#include "fake_os.h"
#include "found_slab.h"
#include "heap/heap.h"
#include "heap/heap_check.h"
#include "heap/slab.h"
#include "space/page_map.h"

static struct heap heap;

static void begin(void) {
    page_map_init();
    heap_init(&heap, 2);
}

static void check(void) {
    assert_int_equal(heap_check(&heap), 0);
    assert_int_equal(arena_check(), 0);
}

// Takes the blocks of `words` words of one slab of 64 bytes into blocks[].
static void take_words(unsigned words, void **blocks) {
    for (unsigned got = 0; got < words * 64;) {
        const unsigned rest = words * 64 - got;
        got += heap_take(&heap, SIZE_CLASS_64, rest < 63 ? rest : 63, blocks + got);
    }
}

static void test_a_refill_of_scattered_blocks_touches_few_words(void **state) {
    (void)state;
    begin();
    enum { WORDS = 12 };
    void *blocks[WORDS * 64];
    take_words(WORDS, blocks);
    for (unsigned w = 0; w < WORDS; w++) {
        heap_put(&heap, &blocks[w * 64 + w], 1);
    }
    // One of each word, until there are a few.
    void *again[63];
    for (unsigned w = 0; w < WORDS; w += 4) {
        assert_int_equal(heap_take(&heap, SIZE_CLASS_64, 63, again), 4);
        for (unsigned i = 0; i < 4; i++) {
            assert_ptr_equal(again[i], blocks[(w + i) * 64 + w + i]);
        }
    }
    // Where words have several, those of two.
    for (unsigned w = 0; w < WORDS; w++) {
        heap_put(&heap, &blocks[w * 64], 6);
    }
    assert_int_equal(heap_take(&heap, SIZE_CLASS_64, 63, again), 12);
    assert_memory_equal(again, blocks, 6 * sizeof(void *));
    assert_memory_equal(again + 6, blocks + 64, 6 * sizeof(void *));
    check();
}

static void test_few_words_are_put_back(void **state) {
    (void)state;
    begin();
    void *blocks[4 * 64];
    take_words(4, blocks);
    const uint64_t free_blocks = slab_of(blocks[0])->free_count;
    // In one stretch what lies in one word, in whatever order.
    void *flushed[] = {blocks[0],  blocks[2],   blocks[1], blocks[65],
                       blocks[66], blocks[128], blocks[3]};
    assert_int_equal(heap_put_few(&heap, flushed, ARRAY_COUNT(flushed)), 5);
    assert_int_equal(slab_of(blocks[0])->free_count, free_blocks + 5);
    assert_int_equal(heap_put_few(&heap, flushed + 5, 2), 2);
    assert_int_equal(slab_of(blocks[0])->free_count, free_blocks + 7);
    check();
}

// What is no block, or free already, is reported, counts as put back, and is no word.
static void test_few_words_without_those_of_misuse(void **state) {
    (void)state;
    begin();
    void *blocks[3 * 64];
    take_words(3, blocks);
    const uint64_t free_blocks = slab_of(blocks[0])->free_count;
    options.abort = 0;
    stderr_begin();
    void *flushed[] = {(char *)blocks[0] + 8, blocks[0], blocks[0], blocks[64], blocks[128]};
    assert_int_equal(heap_put_few(&heap, flushed, ARRAY_COUNT(flushed)), 4);
    assert_non_null(strstr(stderr_end(), "double free: 0x"));
    assert_int_equal(atomic_load_relaxed(&process_counters.value[COUNTER_misuses]), 2);
    assert_int_equal(slab_of(blocks[0])->free_count, free_blocks + 2);
    check();
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_refill_of_scattered_blocks_touches_few_words),
        cmocka_unit_test(test_few_words_are_put_back),
        cmocka_unit_test(test_few_words_without_those_of_misuse),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
