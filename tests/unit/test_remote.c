// Frees by other threads while the owner allocates: every block comes back exactly once, whatever
// slabs come, go and change their owner meanwhile.
#include "isolate.h"

#include <pthread.h>
#include <string.h>

#include "base/bits.h"
#include "config/options.h"
#include "fake_os.h"
#include "heap/heap.h"
#include "heap/heap_check.h"
#include "heap/slab.h"
#include "space/page_map.h"

enum { OWNER_COUNT = 2, FREER_COUNT = 2, RING_COUNT = 256, ROUNDS = 20000 };

static struct heap heaps[OWNER_COUNT];
// A mailbox per owner and freer: a slot is empty or holds a block to free.
// Release by the owner, acquire by the freer: hands the block over.
static _Atomic(void *) mailbox[OWNER_COUNT][FREER_COUNT][RING_COUNT];
static _Atomic(uint32_t) owners_done;  // release by owners, acquire by freers

static const uint64_t classes[] = {SIZE_CLASS_16, SIZE_CLASS_64, SIZE_CLASS_1024, SIZE_CLASS_4096,
                                   SIZE_CLASS_65536};

static void *own(void *argument) {
    const uintptr_t number = (uintptr_t)argument;
    struct heap *heap = &heaps[number];
    uint64_t random_state = number + 11;
    for (unsigned round = 0; round < ROUNDS; round++) {
        const uint64_t class_index = classes[random_next(&random_state) % ARRAY_COUNT(classes)];
        const unsigned want = 1 + (unsigned)(random_next(&random_state) % 8);
        void *blocks[8];
        lock_acquire(&heap->lock);
        heap_collect(heap);
        const unsigned got = heap_take(heap, class_index, want, blocks);
        lock_release(&heap->lock);
        for (unsigned i = 0; i < got; i++) {
            // Nobody else holds it: its first word says so.
            uintptr_t *first = blocks[i];
            *first = (uintptr_t)blocks[i];
            _Atomic(void *) *slot =
                &mailbox[number][random_next(&random_state) % FREER_COUNT][round % RING_COUNT];
            void *empty = NULL;
            if (!atomic_compare_exchange_strong_explicit(
                    slot, &empty, blocks[i], memory_order_release, memory_order_relaxed)) {
                lock_acquire(&heap->lock);
                heap_put(heap, &blocks[i], 1);
                lock_release(&heap->lock);
            }
        }
        if (round % 64 == 0) {
            lock_acquire(&heap->lock);
            require(heap_check(heap) == 0);
            heap_release_empty(heap, false);
            lock_release(&heap->lock);
        }
    }
    atomic_fetch_add_explicit(&owners_done, 1, memory_order_release);
    return NULL;
}

static bool free_slot(_Atomic(void *) *slot) {
    void *block = atomic_exchange_acquire(slot, NULL);
    if (block == NULL) {
        return false;
    }
    require(*(uintptr_t *)block == (uintptr_t)block);
    *(uintptr_t *)block = 0;
    struct run *slab = arena_find((uintptr_t)block);
    require(slab != NULL);
    const int index = slab_index(slab, (uintptr_t)block);
    require(index >= 0);
    heap_publish(slab, (unsigned)index / 64, bit((unsigned)index % 64));
    return true;
}

static void *free_all(void *argument) {
    const uintptr_t number = (uintptr_t)argument;
    for (bool last = false, freed = true; !last || freed;) {
        last = atomic_load_acquire(&owners_done) == OWNER_COUNT;
        freed = false;
        for (unsigned owner = 0; owner < OWNER_COUNT; owner++) {
            for (unsigned i = 0; i < RING_COUNT; i++) {
                freed = free_slot(&mailbox[owner][number][i]) || freed;
            }
        }
    }
    return NULL;
}

static void run_threads(void) {
    page_map_init();
    for (uint32_t i = 0; i < OWNER_COUNT; i++) {
        heap_init(&heaps[i], i + 2);
    }
    pthread_t owners[OWNER_COUNT];
    pthread_t freers[FREER_COUNT];
    for (uintptr_t i = 0; i < FREER_COUNT; i++) {
        assert_int_equal(pthread_create(&freers[i], NULL, free_all, (void *)i), 0);
    }
    for (uintptr_t i = 0; i < OWNER_COUNT; i++) {
        assert_int_equal(pthread_create(&owners[i], NULL, own, (void *)i), 0);
    }
    for (unsigned i = 0; i < OWNER_COUNT; i++) {
        pthread_join(owners[i], NULL);
    }
    for (unsigned i = 0; i < FREER_COUNT; i++) {
        pthread_join(freers[i], NULL);
    }
    // An announcement may have to be handed on once.
    for (unsigned i = 0; i < 2 * OWNER_COUNT; i++) {
        heap_collect(&heaps[i % OWNER_COUNT]);
    }
    for (unsigned i = 0; i < OWNER_COUNT; i++) {
        assert_int_equal(heap_check(&heaps[i]), 0);
        heap_release_empty(&heaps[i], false);
        for (unsigned class_index = 0; class_index < SIZE_CLASS_COUNT; class_index++) {
            assert_int_equal(heaps[i].bins[class_index].slab_count, 0);
        }
    }
    assert_int_equal(arena_check(), 0);
    assert_int_equal(atomic_load_relaxed(&process_counters.value[COUNTER_misuses]), 0);
}

static void test_every_block_comes_back_once(void **state) {
    (void)state;
    run_threads();
}

static void test_every_block_comes_back_when_slabs_go_at_once(void **state) {
    (void)state;
    options.retain_slabs = 0;
    run_threads();
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_block_comes_back_once),
        cmocka_unit_test(test_every_block_comes_back_when_slabs_go_at_once),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
