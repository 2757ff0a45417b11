// What a refill takes and a flush puts back: few words of bitmaps, so that no malloc and no free takes long; of other heaps' words all that
// comes of them, together.
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

static struct heap heap, other;

static void begin(void) {
    page_map_init();
    heap_init(&heap, 2);
}

static void check(void) {
    assert_int_equal(heap_check(&heap), 0);
    assert_int_equal(arena_check(), 0);
}

// In rising order.
static unsigned take(struct heap *from, uint64_t class_index, unsigned want, void **blocks) {
    const unsigned got = heap_take(from, class_index, want < 63 ? want : 63, blocks);
    reverse(blocks, got);
    return got;
}

// Takes the blocks of `words` words of one slab of 64 bytes into blocks[].
static void take_words_of(struct heap *from, unsigned words, void **blocks) {
    for (unsigned got = 0; got < words * 64;) {
        got += take(from, SIZE_CLASS_64, words * 64 - got, blocks + got);
    }
}

static void take_words(unsigned words, void **blocks) {
    take_words_of(&heap, words, blocks);
}

static void *take_one(struct heap *from) {
    void *block;
    assert_int_equal(heap_take(from, SIZE_CLASS_64, 1, &block), 1);
    return block;
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
    // One of each word, until there are a few: two words at a time, the later one first.
    void *again[63];
    for (unsigned w = 0; w < WORDS; w += 4) {
        assert_int_equal(heap_take(&heap, SIZE_CLASS_64, 63, again), 4);
        for (unsigned i = 0; i < 4; i++) {
            const unsigned from = w + (i ^ 1);
            assert_ptr_equal(again[i], blocks[from * 64 + from]);
        }
    }
    // Where words have several, those of two.
    for (unsigned w = 0; w < WORDS; w++) {
        heap_put(&heap, &blocks[w * 64], 6);
    }
    assert_int_equal(take(&heap, SIZE_CLASS_64, 63, again), 12);
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

// Of two slabs that lie beside each other, of blocks that fill them, fewer than a word has bits: what follows in the order of addresses,
// upward or downward, goes home at once, up to the end of its slab, but for what is free already.
static void put_beside_each_other(bool downward) {
    begin();
    options.abort = 0;
    enum { SLABS = 4, BLOCK_BYTES = 4096, EACH = PAGE_BYTES / BLOCK_BYTES };
    assert_int_equal(size_classes[SIZE_CLASS_4096].block_count, EACH);
    void *blocks[SLABS * EACH];
    void **second = NULL;
    for (unsigned s = 0; s < SLABS; s++) {
        void **first = blocks + s * EACH;
        assert_int_equal(take(&heap, SIZE_CLASS_4096, EACH, first), EACH);
        if (s > 0 && (char *)first[0] == (char *)first[-1] + BLOCK_BYTES) {
            second = first;
        }
    }
    assert_non_null(second);
    heap_put(&heap, second - 5, 1);
    heap_put(&heap, second + 5, 2);
    void *batch[20];
    memcpy(batch, second - 10, sizeof batch);
    if (downward) {
        reverse(batch, 20);
    }
    stderr_begin();
    heap_put(&heap, batch, 20);
    assert_int_equal(atomic_load_relaxed(&process_counters.value[COUNTER_misuses]), 3);
    assert_non_null(strstr(stderr_end(), "double free: 0x"));
    assert_int_equal(slab_of(second[-1])->free_count, 10);
    assert_int_equal(slab_of(second[0])->free_count, 10);
    check();
    void *again[EACH];
    assert_int_equal(take(&heap, SIZE_CLASS_4096, EACH, again), 10);
    check();
}

static void test_blocks_put_back_upward(void **state) {
    (void)state;
    put_beside_each_other(false);
}

static void test_blocks_put_back_downward(void **state) {
    (void)state;
    put_beside_each_other(true);
}

static uint64_t publishes(void) {
    return atomic_load_relaxed(&heap.counters.value[COUNTER_remote_publishes]);
}

// Words of another heap wait for what comes later of them, eight of them; the heap's own between them do not.
static void test_words_of_another_heap_wait(void **state) {
    (void)state;
    begin();
    heap_init(&other, 3);
    enum { WORDS = 9, EACH = 3 };
    void *others[WORDS * 64], *own[WORDS * EACH];
    take_words_of(&other, WORDS, others);
    assert_int_equal(heap_take(&heap, SIZE_CLASS_64, WORDS * EACH, own), WORDS * EACH);
    void *batch[2 * (WORDS - 1) * EACH];
    unsigned count = 0;
    for (unsigned i = 0; i < EACH; i++) {
        for (unsigned w = 0; w < WORDS - 1; w++) {
            batch[count++] = others[w * 64 + i];
            batch[count++] = own[i * WORDS + w];
        }
    }
    heap_put(&heap, batch, count);
    assert_int_equal(publishes(), WORDS - 1);
    // With one more they are sent when that comes.
    count = 0;
    for (unsigned w = 0; w < WORDS; w++) {
        batch[count++] = others[w * 64 + EACH];
    }
    batch[count++] = others[EACH + 1];
    heap_put(&heap, batch, count);
    assert_int_equal(publishes(), WORDS - 1 + WORDS + 1);
    assert_int_equal(heap_collect(&other), (WORDS - 1) * EACH + count);
    check();
    assert_int_equal(heap_check(&other), 0);
}

// The second free meets the first one, which waits behind another word's.
static void test_block_of_another_heap_twice_in_one_batch(void **state) {
    (void)state;
    begin();
    heap_init(&other, 3);
    options.abort = 0;
    stderr_begin();
    void *others[65];
    for (unsigned i = 0; i < 65; i++) {
        others[i] = take_one(&other);
    }
    void *batch[] = {others[0], others[64], others[1], others[0]};
    heap_put(&heap, batch, 4);
    assert_int_equal(atomic_load_relaxed(&process_counters.value[COUNTER_misuses]), 1);
    assert_int_equal(heap_collect(&other), 3);
    assert_non_null(strstr(stderr_end(), "double free: 0x"));
}

// Where it was put back tells what looks for free pages.
static void test_only_blocks_of_its_own_make_a_heap_look_for_pages(void **state) {
    (void)state;
    begin();
    heap_init(&other, 3);
    void *own = take_one(&heap);
    void *others[2] = {take_one(&other), take_one(&other)};
    heap_put(&heap, others, 1);
    assert_false(heap.put_since_purge || heap.put_since_early);
    assert_false(other.put_since_purge || other.put_since_early);
    assert_int_equal(heap_collect(&other), 1);
    assert_true(other.put_since_purge && other.put_since_early);
    heap_put(&heap, &own, 1);
    assert_true(heap.put_since_purge && heap.put_since_early);
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_refill_of_scattered_blocks_touches_few_words),
        cmocka_unit_test(test_few_words_are_put_back),
        cmocka_unit_test(test_few_words_without_those_of_misuse),
        cmocka_unit_test(test_blocks_put_back_upward),
        cmocka_unit_test(test_blocks_put_back_downward),
        cmocka_unit_test(test_words_of_another_heap_wait),
        cmocka_unit_test(test_block_of_another_heap_twice_in_one_batch),
        cmocka_unit_test(test_only_blocks_of_its_own_make_a_heap_look_for_pages),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
