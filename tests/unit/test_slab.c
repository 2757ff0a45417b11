// A slab of every class, against a set of blocks.
#include "isolate.h"

#include <limits.h>
#include <string.h>

#include "base/bits.h"
#include "config/options.h"
#include "fake_os.h"
#include "found_slab.h"
#include "heap/heap.h"
#include "heap/slab.h"
#include "space/metadata.h"
#include "space/page_map.h"

enum { BLOCKS_MAX = 4096, HEAP_ID = 5 };

static struct heap heap;
static bool held[BLOCKS_MAX];  // the model: blocks the slab holds

static struct run *create(uint64_t class_index) {
    struct run *slab = slab_create(&heap, HEAP_ID, class_index);
    assert_non_null(slab);
    assert_int_equal(slab_check(slab), 0);
    for (unsigned i = 0; i < BLOCKS_MAX; i++) {
        held[i] = i < slab->block_count;
    }
    return slab;
}

static void start(void) {
    page_map_init();
    heap_init(&heap, HEAP_ID);
}

static void *block_of(const struct run *slab, unsigned index) {
    return (void *)(slab->start + (size_t)index * size_classes[slab->class_index].block_bytes);
}

static unsigned held_count(const struct run *slab) {
    unsigned count = 0;
    for (unsigned i = 0; i < slab->block_count; i++) {
        count += held[i];
    }
    return count;
}

static void compare(const struct run *slab) {
    assert_int_equal(slab_check(slab), 0);
    assert_int_equal(slab->free_count, held_count(slab));
    for (unsigned i = 0; i < slab->block_count; i++) {
        assert_int_equal(slab_holds(slab, i), held[i]);
    }
}

// Takes and compares with the lowest blocks of the model, of the first two words that have any.
static void take(struct run *slab, unsigned want) {
    void *blocks[BLOCKS_MAX];
    const unsigned got = slab_take(slab, want, blocks);
    reverse(blocks, got);
    unsigned expected = 0, words = 0, last_word = UINT_MAX;
    for (unsigned i = 0; i < slab->block_count && expected < want; i++) {
        if (held[i]) {
            words += i / 64 != last_word;
            last_word = i / 64;
            if (words > 2) {
                break;
            }
            assert_true(expected < got);
            assert_ptr_equal(blocks[expected], block_of(slab, i));
            held[i] = false;
            expected++;
        }
    }
    assert_int_equal(got, expected);
}

// So many blocks, or all there are.
static void take_in_all(struct run *slab, unsigned count) {
    const unsigned left = slab->free_count > count ? slab->free_count - count : 0;
    while (slab->free_count > left) {
        take(slab, slab->free_count - left);
    }
}

// All the slab holds, in rising order. Returns how many.
static unsigned take_all(struct run *slab, void **blocks) {
    unsigned got = 0;
    while (slab->free_count != 0) {
        const unsigned step = slab_take(slab, BLOCKS_MAX, blocks + got);
        reverse(blocks + got, step);
        got += step;
    }
    return got;
}

static void put(struct run *slab, unsigned word, uint64_t random) {
    uint64_t bits = 0;
    for (unsigned i = word * 64; i < word * 64 + 64 && i < slab->block_count; i++) {
        if (!held[i] && (random >> i % 64 & 1) != 0) {
            bits |= bit(i % 64);
            held[i] = true;
        }
    }
    if (bits != 0) {
        slab_put(slab, word, bits);
    }
}

static void put_all(struct run *slab) {
    for (unsigned word = 0; word < slab_words(slab); word++) {
        put(slab, word, UINT64_MAX);
    }
}

static void test_take_and_put_of_every_class(void **state) {
    (void)state;
    start();
    uint64_t random_state = test_seed();
    for (unsigned class_index = 0; class_index < SIZE_CLASS_COUNT; class_index++) {
        struct run *slab = create(class_index);
        for (unsigned n = 0; n < 60; n++) {
            const uint64_t dice = random_next(&random_state);
            if (dice % 2 == 0) {
                take(slab, 1 + (unsigned)(dice >> 8) % 200);
            } else {
                put(slab, (unsigned)(dice >> 8) % slab_words(slab), random_next(&random_state));
            }
            compare(slab);
        }
        take_in_all(slab, BLOCKS_MAX);
        compare(slab);
        assert_int_equal(slab->free_count, 0);
        put_all(slab);
        compare(slab);
        slab_destroy(slab);
        assert_int_equal(arena_check(), 0);
    }
}

static void test_blocks_do_not_overlap_and_stay_inside(void **state) {
    (void)state;
    start();
    for (unsigned class_index = 0; class_index < SIZE_CLASS_COUNT; class_index++) {
        struct run *slab = create(class_index);
        const size_t block_bytes = size_classes[class_index].block_bytes;
        void *blocks[BLOCKS_MAX];
        const unsigned got = take_all(slab, blocks);
        assert_int_equal(got, size_classes[class_index].block_count);
        for (unsigned i = 0; i < got; i++) {
            assert_true((uintptr_t)blocks[i] >= slab->start);
            assert_true((uintptr_t)blocks[i] + block_bytes <=
                        slab->start + slab->page_count * PAGE_BYTES);
            assert_true(i == 0 || (char *)blocks[i] >= (char *)blocks[i - 1] + block_bytes);
            memset(blocks[i], 1, block_bytes);
        }
    }
}

static void test_index_of_every_16th_address(void **state) {
    (void)state;
    start();
    for (unsigned class_index = 0; class_index < SIZE_CLASS_COUNT; class_index++) {
        struct run *slab = create(class_index);
        const size_t block_bytes = size_classes[class_index].block_bytes;
        const size_t slab_bytes = slab->page_count * PAGE_BYTES;
        for (size_t offset = 0; offset < slab_bytes; offset += 16) {
            const size_t index = offset / block_bytes;
            const bool is_block = index * block_bytes == offset && index < slab->block_count;
            assert_int_equal(slab_index(slab, slab->start + offset), is_block ? (int)index : -1);
            assert_int_equal(slab_index(slab, slab->start + offset + 1), -1);
            assert_int_equal(slab_index(slab, slab->start + offset + 8), -1);
        }
    }
}

static void test_random_take_hands_out_every_block_once(void **state) {
    (void)state;
    start();
    uint64_t random_state = test_seed();
    for (unsigned class_index = 0; class_index < SIZE_CLASS_COUNT; class_index++) {
        struct run *slab = create(class_index);
        unsigned in_order = 0;
        int last = -1;
        for (unsigned n = 0; n < slab->block_count; n++) {
            const int index = slab_index(slab, (uintptr_t)slab_take_random(slab, &random_state));
            assert_true(index >= 0 && held[index]);
            held[index] = false;
            in_order += n < slab->block_count / 2u && index == last + 1;
            last = index;
        }
        compare(slab);
        // Of the first half, fewer than half came in rising order.
        assert_true(slab->block_count < 60 || in_order < slab->block_count / 4);
    }
}

static void test_page_map_entries(void **state) {
    (void)state;
    start();
    for (unsigned class_index = 0; class_index < SIZE_CLASS_COUNT; class_index += 9) {
        struct run *slab = create(class_index);
        const uintptr_t first = slab->start;
        const unsigned pages = slab->page_count;
        for (unsigned page = 0; page < pages; page++) {
            assert_int_equal(page_map_get(first + page * PAGE_BYTES),
                             page_entry_slab(slab, class_index));
        }
        assert_ptr_equal(arena_find(first + pages * PAGE_BYTES - 1), slab);
        assert_ptr_equal(slab_find(first + pages * PAGE_BYTES - 1), slab);
        assert_ptr_equal(atomic_load_relaxed(&slab->heap), &heap);
        slab_destroy(slab);
        for (unsigned page = 0; page < pages; page++) {
            assert_int_equal(page_map_get(first + page * PAGE_BYTES), PAGE_ENTRY_NONE);
        }
        assert_null(atomic_load_relaxed(&slab->heap));
        assert_int_equal(atomic_load_relaxed(&slab->kind), RUN_FREE);
    }
}

static void test_free_counts_blocks_on_their_way_back(void **state) {
    (void)state;
    start();
    struct run *slab = create(SIZE_CLASS_64);
    take(slab, 3);
    assert_false(slab_is_free(slab, 1));
    atomic_store_relaxed(&slab->remote_bits[0], bit(1));
    assert_true(slab_is_free(slab, 1));
    assert_false(slab_holds(slab, 1));
    assert_false(slab_is_free(slab, 2));
    assert_true(slab_is_free(slab, 3));
}

// ---- Purging inside ----

static void check_contents(const struct run *slab, unsigned index, unsigned char mark) {
    const unsigned char *block = block_of(slab, index);
    const size_t block_bytes = size_classes[slab->class_index].block_bytes;
    for (size_t at = 0; at < block_bytes; at += 16) {
        assert_int_equal(block[at], mark);
    }
    assert_int_equal(block[block_bytes - 1], mark);
}

// Machine pages wholly in held blocks, the last one's with what is behind it, that begin below `limit_bytes`, counted the slow way.
static size_t expected_purge(const struct run *slab, size_t limit_bytes) {
    const size_t page = os_page_bytes();
    const size_t block_bytes = size_classes[slab->class_index].block_bytes;
    size_t bytes = 0;
    for (size_t at = 0; at < limit_bytes; at += page) {
        bool all_held = true;
        for (size_t byte = at; byte < at + page; byte += 16) {
            const size_t index = least_u64(byte / block_bytes, slab->block_count - 1u);
            all_held = all_held && held[index];
        }
        bytes += all_held ? page : 0;
    }
    return bytes;
}

// `tail_dirty`: the pages behind the blocks that were handed out may hold memory of a former run.
static void purge_every_class(bool tail_dirty) {
    start();
    uint64_t random_state = test_seed();
    for (unsigned class_index = 0; class_index < SIZE_CLASS_COUNT; class_index++) {
        struct run *slab = create(class_index);
        const size_t block_bytes = size_classes[class_index].block_bytes;
        const unsigned fresh = slab->block_count * 3u / 4;
        take_in_all(slab, fresh);
        for (unsigned i = 0; i < fresh; i++) {
            memset(block_of(slab, i), (int)(i % 255 + 1), block_bytes);
        }
        // Two thirds go back, most of them in long stretches.
        for (unsigned word = 0; word < slab_words(slab); word++) {
            const uint64_t random = random_next(&random_state);
            put(slab, word, random % 3 == 0 ? random : random % 3 == 1 ? UINT64_MAX : 0);
        }
        if (slab_words(slab) <= 2) {
            put(slab, 0, random_next(&random_state) << 20 | 0xfff0);
        }
        // The pages came from the class before, whose blocks were in use.
        assert_int_equal(slab->tail_dirty, class_index != 0);
        slab->tail_dirty = tail_dirty;
        const size_t expected =
            expected_purge(slab, tail_dirty ? slab->page_count * PAGE_BYTES : fresh * block_bytes);
        const uint64_t before = fake_os_purged_bytes();
        assert_int_equal(slab_purge(slab, 0).bytes, expected);
        assert_int_equal(fake_os_purged_bytes() - before, expected);
        assert_int_equal(slab->purge_age, SLAB_PURGE_NONE);
        assert_int_equal(slab->tail_dirty, 0);
        compare(slab);
        for (unsigned i = 0; i < fresh; i++) {
            if (!held[i]) {
                check_contents(slab, i, (unsigned char)(i % 255 + 1));
            }
        }
        take_in_all(slab, BLOCKS_MAX);
        put_all(slab);
        slab_destroy(slab);
    }
}

static void test_purge_of_every_class(void **state) {
    (void)state;
    purge_every_class(false);
}

static void test_purge_with_memory_of_a_former_run(void **state) {
    (void)state;
    purge_every_class(true);
}

// What is behind a last block in use goes as well, once; but not where only what is free in long stretches is to go.
static void test_purge_of_the_tail_behind_a_block_in_use(void **state) {
    (void)state;
    start();
    unsigned with_tail = 0;
    for (unsigned class_index = 0; class_index < SIZE_CLASS_COUNT; class_index++) {
        slab_destroy(create(class_index));
        struct run *slab = create(class_index);
        assert_true(slab->tail_dirty);
        const size_t blocks_end =
            slab->start + slab->block_count * size_classes[class_index].block_bytes;
        const size_t tail = align_up(blocks_end, os_page_bytes());
        const size_t end = slab->start + slab->page_count * PAGE_BYTES;
        take_in_all(slab, BLOCKS_MAX);
        memset((void *)slab->start, 1, end - slab->start);
        assert_int_equal(slab_purge(slab, 4 * KIB).bytes, 0);
        assert_true(slab->tail_dirty);
        assert_int_equal(slab_purge(slab, 0).bytes, end - tail);
        for (size_t at = tail; at < end; at++) {
            assert_int_equal(*(const char *)at, 0);
        }
        for (size_t at = slab->start; at < tail; at++) {
            assert_int_equal(*(const char *)at, 1);
        }
        assert_int_equal(slab->tail_dirty, 0);
        assert_int_equal(slab_purge(slab, 0).calls, 0);
        with_tail += tail != end;
        put_all(slab);
        slab_destroy(slab);
    }
    assert_true(with_tail > 5);
}

static void test_purge_on_a_machine_with_larger_pages(void **state) {
    (void)state;
    fake_os_set_page_bytes(16 * KIB);
    purge_every_class(false);
}

static void test_refused_purge(void **state) {
    (void)state;
    start();
    struct run *slab = create(SIZE_CLASS_4096);
    take(slab, 30);
    memset((void *)slab->start, 1, 30 * 4096);
    put(slab, 0, bit_range(0, 8));
    fake_os_fail(OS_MADVISE, 1, true);
    assert_int_equal(slab_purge(slab, 0).bytes, 0);
    fake_os_mend();
    compare(slab);
    for (unsigned i = 8; i < 30; i++) {
        check_contents(slab, i, 1);
    }
}

// A block that was freed while its page was locked in memory: the others go.
static void test_purge_around_a_locked_page(void **state) {
    (void)state;
    start();
    struct run *slab = create(SIZE_CLASS_4096);
    take(slab, 16);
    memset((void *)slab->start, 1, 16 * 4096);
    put(slab, 0, bit_range(0, 12));
    fake_os_lock((void *)(slab->start + 3 * 4096), 4096);
    const struct slab_given_back purged = slab_purge(slab, 0);
    fake_os_lock(NULL, 0);
    assert_int_equal(purged.bytes, 11 * 4096);
    assert_int_equal(purged.calls, 1 + 12);
    compare(slab);
    for (unsigned i = 0; i < 16; i++) {
        check_contents(slab, i, i == 3 || i >= 12 ? 1 : 0);
    }
}

// ---- Want of memory ----

static void test_no_memory_for_the_run(void **state) {
    (void)state;
    start();
    fake_os_fail(OS_MMAP, 2, true);
    assert_null(slab_create(&heap, HEAP_ID, SIZE_CLASS_64));
    fake_os_mend();
    create(SIZE_CLASS_64);
    assert_int_equal(arena_check(), 0);
}

static void test_no_memory_for_the_bitmaps(void **state) {
    (void)state;
    start();
    create(SIZE_CLASS_4096);
    // The place of the next one has its descriptor.
    slab_destroy(create(SIZE_CLASS_4096));
    fake_os_fail(OS_MMAP, 1, true);
    while (metadata_alloc(64) != NULL) {
    }
    struct arena_totals before;
    arena_totals(&before);
    assert_null(slab_create(&heap, HEAP_ID, SIZE_CLASS_16));
    struct arena_totals after;
    arena_totals(&after);
    assert_int_equal(before.free_bytes, after.free_bytes);
    // At most 64 blocks: the bitmaps are in the descriptor.
    create(SIZE_CLASS_4096);
    fake_os_mend();
    create(SIZE_CLASS_16);
    assert_int_equal(arena_check(), 0);
}

// ---- Guards ----

static void test_guard_behind_a_slab(void **state) {
    (void)state;
    options.guard_gaps = 1;
    start();
    struct run *slab = create(SIZE_CLASS_64);
    assert_int_equal(fake_os_state((char *)slab->start + PAGE_BYTES), FAKE_INACCESSIBLE);
    slab_destroy(slab);
    assert_int_equal(fake_os_bytes(FAKE_INACCESSIBLE), 0);
}

// A thread that frees a block a second time may come so late that the slab is gone: its bit meets no other structure, nor
// what is free of the next slab.
static void test_late_bit_stays_among_remote_bits(void **state) {
    (void)state;
    start();
    static const uint64_t classes[] = {SIZE_CLASS_16, SIZE_CLASS_32, SIZE_CLASS_64, SIZE_CLASS_256};
    for (size_t i = 0; i < ARRAY_COUNT(classes); i++) {
        struct run *slab = create(classes[i]);
        const unsigned words = slab_words(slab);
        const size_t bytes = 2 * slab_bitmap_bytes(words);
        _Atomic(uint64_t) *const free_bits = slab->free_bits;
        _Atomic(uint64_t) *const late = slab->remote_bits;
        slab_destroy(slab);
        for (unsigned n = 0; n < 4; n++) {
            const char *piece = metadata_alloc(bytes);
            assert_non_null(piece);
            assert_false((uintptr_t)late - (uintptr_t)piece < bytes);
        }
        atomic_or_acq_rel(&late[words - 1], 1);
        assert_int_equal(metadata_check(), 0);
        slab = create(classes[i]);
        assert_ptr_equal(slab->free_bits, free_bits);
        assert_ptr_equal(slab->remote_bits, late);
        assert_int_equal(metadata_check(), 0);
        slab_destroy(slab);
    }
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_take_and_put_of_every_class),
        cmocka_unit_test(test_blocks_do_not_overlap_and_stay_inside),
        cmocka_unit_test(test_index_of_every_16th_address),
        cmocka_unit_test(test_random_take_hands_out_every_block_once),
        cmocka_unit_test(test_page_map_entries),
        cmocka_unit_test(test_free_counts_blocks_on_their_way_back),
        cmocka_unit_test(test_purge_of_every_class),
        cmocka_unit_test(test_purge_with_memory_of_a_former_run),
        cmocka_unit_test(test_purge_of_the_tail_behind_a_block_in_use),
        cmocka_unit_test(test_purge_on_a_machine_with_larger_pages),
        cmocka_unit_test(test_refused_purge),
        cmocka_unit_test(test_purge_around_a_locked_page),
        cmocka_unit_test(test_no_memory_for_the_run),
        cmocka_unit_test(test_no_memory_for_the_bitmaps),
        cmocka_unit_test(test_guard_behind_a_slab),
        cmocka_unit_test(test_late_bit_stays_among_remote_bits),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
