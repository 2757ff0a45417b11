// Two thread caches side by side, and what alloc.h does with one, for the tests of the cache.
#pragma once

#include "isolate.h"

#include "config/options.h"
#include "fake_os.h"
#include "heap/heap_check.h"
#include "space/metadata.h"
#include "space/page_map.h"
#include "thread/cache.h"

static struct thread_cache *cache, *other;

static inline struct thread_cache *make_cache(uint32_t id) {
    struct thread_cache *made = metadata_alloc(sizeof *made);
    assert_non_null(made);
    cache_init(made, id);
    return made;
}

// Magazines from the first operation on, unless a test sets watched_operations afterwards.
static inline void start(void) {
    options.watched_operations = 0;
    page_map_init();
    cache = make_cache(2);
    other = make_cache(3);
}

// What alloc.h does, without ticks.
static inline void *take_from(struct thread_cache *from, uint64_t class_index) {
    void *block = cache_pop(from, class_index + 1);
    if (block == NULL) {
        block = cache_pop_depot(from, class_index);
    }
    return block != NULL ? block : cache_alloc_slow(from, class_index);
}

static inline void give_to(struct thread_cache *to, uint64_t class_index, void *block) {
    assert_int_equal(page_map_flat == NULL ? class_index : cache_class_of(to, (uintptr_t)block),
                     class_index);
    if (!cache_push(to, to->address_max, block) &&
        (page_map_flat == NULL || !cache_push_depot(to, class_index, block))) {
        cache_free_slow(to, arena_find((uintptr_t)block), block);
    }
}

static inline void *take(uint64_t class_index) {
    void *block = take_from(cache, class_index);
    assert_non_null(block);
    return block;
}

static inline void give(uint64_t class_index, void *block) {
    give_to(cache, class_index, block);
}

static inline uint64_t counted(const struct thread_cache *of, enum counter counter) {
    return atomic_load_relaxed(
        &((struct thread_cache *)(uintptr_t)of)->heap.counters.value[counter]);
}

static inline uint64_t used_blocks(const struct thread_cache *of, uint64_t class_index) {
    struct heap_class_totals totals;
    heap_class_totals(&of->heap, class_index, &totals);
    return totals.used_blocks;
}

static inline void check(void) {
    assert_int_equal(cache_check(cache), 0);
    assert_int_equal(heap_check(&cache->heap), 0);
    assert_int_equal(cache_check(other), 0);
    assert_int_equal(heap_check(&other->heap), 0);
    assert_int_equal(arena_check(), 0);
}

static inline uint32_t capacity(uint64_t class_index) {
    return cache->magazines[class_index].capacity;
}

// The class keeps running dry and over.
static inline void churn(uint64_t class_index, unsigned blocks, unsigned rounds) {
    static void *held[8192];
    assert_true(blocks <= ARRAY_COUNT(held));
    for (unsigned round = 0; round < rounds; round++) {
        for (unsigned i = 0; i < blocks; i++) {
            held[i] = take(class_index);
        }
        for (unsigned i = 0; i < blocks; i++) {
            give(class_index, held[i]);
        }
    }
    check();
}
