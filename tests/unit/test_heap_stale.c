// Blocks that were freed twice, where their slab has gone and another is in its place: nothing of that one is freed.
#include "two_heaps.h"

#include "base/bits.h"
#include "heap/slab.h"

// What another thread does once so many slabs have gone. The linker puts this between heap.c and slab.c.
static void (*when_destroyed)(void);
static unsigned destroyed_until_then;

void __real_slab_destroy(struct run *slab);
void __wrap_slab_destroy(struct run *slab);
void __wrap_slab_destroy(struct run *slab) {
    __real_slab_destroy(slab);
    if (destroyed_until_then != 0 && --destroyed_until_then == 0) {
        when_destroyed();
    }
}

static void *inherited[65];

static void take_inherited(void) {
    for (unsigned i = 0; i < ARRAY_COUNT(inherited); i++) {
        inherited[i] = take_one(&other, SIZE_CLASS_80);
    }
}

// The slab goes in the midst of a flush, and another thread has its place before the flush comes to a block of it that was
// freed before: that one's blocks stay its own, where the freed one was not where one of them starts.
static void test_double_free_while_the_slab_goes(void **state) {
    (void)state;
    options.retain_slabs = 0;
    begin_misuse();
    void *blocks[65];
    for (unsigned i = 0; i < ARRAY_COUNT(blocks); i++) {
        blocks[i] = take_one(&heap, SIZE_CLASS_64);
    }
    const struct run *slab = slab_of(blocks[0]);
    heap_put(&heap, blocks, 64);
    void *batch[] = {
        take_one(&heap, SIZE_CLASS_128),
        blocks[64],  // The last one: with it the slab goes.
        blocks[6],   // In the midst of a block of the slab that is there now.
        take_one(&heap, SIZE_CLASS_96),
    };
    when_destroyed = take_inherited;
    destroyed_until_then = 2;
    heap_put(&heap, batch, ARRAY_COUNT(batch));
    assert_ptr_equal(slab_of(inherited[0]), slab);
    assert_int_equal(misuses(), 1);
    assert_int_equal(heap_collect(&other), 0);
    assert_int_equal(slab->free_count, slab->block_count - 65);
    expect_report("invalid free: 0x");
}

// Bits of a slab that had more blocks than the one that is in its place now, announced late: what a freer does that is
// interrupted between setting its bits and pushing the slab.
static void test_late_bits_behind_the_last_block(void **state) {
    (void)state;
    begin_misuse();
    take_one(&heap, SIZE_CLASS_80);
    struct run *slab = slab_of(take_one(&heap, SIZE_CLASS_80));
    const unsigned word = slab_words(slab) - 1;
    assert_true(slab->block_count % 64 != 0);
    const unsigned free_count = slab->free_count;
    atomic_store_relaxed(&slab->remote_bits[word], bit(63));
    atomic_store_relaxed(&slab->remote_summary, bit(word));
    atomic_store_relaxed(&slab->remote_next, NULL);
    atomic_store_relaxed(&heap.remote_slabs, slab);
    assert_int_equal(heap_collect(&heap), 0);
    assert_int_equal(slab->free_count, free_count);
    assert_int_equal(misuses(), 1);
    heap_publish(slab, word, bit(63));
    assert_false(heap_has_remote(&heap));
    assert_int_equal(misuses(), 2);
    expect_report("double free: 0x");
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_double_free_while_the_slab_goes),
        cmocka_unit_test(test_late_bits_behind_the_last_block),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
