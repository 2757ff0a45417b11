// The checks: one corruption at a time of each structure, by hand, draws the line that names it; undone, the
// heap is sound again. Where one wrong value makes two invariants wrong, both are named.
#include "isolate.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "api/alloc.h"
#include "base/bits.h"
#include "base/check.h"
#include "config/options.h"
#include "control/check.h"
#include "fake_os.h"
#include "heap/huge.h"
#include "heap/large.h"
#include "os/pause.h"
#include "space/arena_pages.h"
#include "space/metadata.h"
#include "space/page_map.h"
#include "thread/lifecycle.h"

static size_t lines_in(const char *text) {
    size_t count = 0;
    for (; *text != '\0'; text++) {
        count += *text == '\n';
    }
    return count;
}

static void expect_sound(void) {
    stderr_begin();
    const size_t violations = check_all();
    const char *text = stderr_end();
    if (violations != 0 || *text != '\0') {
        fail_msg("not sound: %s", text);
    }
}

static void expect_lines(const char *line, const char *more, const char *file, int at) {
    stderr_begin();
    const size_t violations = check_all();
    const char *text = stderr_end();
    const size_t expected = more == NULL ? 1 : 2;
    if (strstr(text, line) == NULL || (more != NULL && strstr(text, more) == NULL) ||
        violations != expected || lines_in(text) != expected) {
        fail_msg("%s:%d: \"%s\" was to be in the %zu lines of: %s", file, at, line, expected, text);
    }
}

#define VIOLATED(change, undo, line, more)            \
    do {                                              \
        change;                                       \
        expect_lines(line, more, __FILE__, __LINE__); \
        undo;                                         \
        expect_sound();                               \
    } while (0)

// `place` holds another value while the heap is checked.
#define WITH(place, value, line, more)                                  \
    do {                                                                \
        const __typeof__(place) right_value = place;                    \
        VIOLATED((place) = (value), (place) = right_value, line, more); \
    } while (0)

static struct run *run_of(const void *block) {
    struct run *run = arena_find((uintptr_t)block);
    assert_non_null(run);
    return run;
}

static void test_slab(void **state) {
    (void)state;
    char *block = hakmem_alloc(700);
    assert_ptr_equal(hakmem_alloc(700), block + 704);
    struct run *slab = run_of(block);
    const unsigned index = (unsigned)slab_index(slab, (uintptr_t)block);
    const unsigned last = slab_words(slab) - 1;
    assert_true(last > 0 && slab->block_count % 64 != 0 && index < 64);
    const uint64_t mask = bit(index);
    expect_sound();
    WITH(slab->free_count, (uint16_t)(slab->free_count - 1),
         "free_count == blocks in free_bits: ", "clean_count <= free_count");
    WITH(slab->summary, slab->summary & ~bit(last),
         "summary tells the words of free_bits that are not 0: ", NULL);
    WITH(slab->summary, slab->summary | bit(last + 1),
         "summary has no bit behind the last word: 1, 0", NULL);
    WITH(slab->fresh_index, (uint16_t)(slab->block_count + 1),
         "fresh_index <= block_count: ", NULL);
    WITH(slab->free_bits[last], slab->free_bits[last] | bit(63),
         "free_bits has no bit behind the last block: 0x8000000000000000, 0",
         "free_count == blocks in free_bits");
    WITH(slab->remote_bits[last], bit(63),
         "remote_bits has no bit behind the last block: 0x8000000000000000, 0", NULL);
    struct heap *heap = &lifecycle_attach()->heap;
    struct bin *bin = &heap->bins[slab->class_index];
    // As a block that came back.
    heap->put_since_purge = true;
    slab->purge_age = SLAB_PURGE_USED;
    slab->free_bits[0] |= mask;
    slab->free_count++;
    bin->used_blocks--;
    WITH(slab->remote_bits[0], mask, "no block is both held and on its way back: ", NULL);
    slab->free_bits[0] &= ~mask;
    slab->free_count--;
    bin->used_blocks++;
    WITH(heap->put_since_purge, false, "a slab with an age is told of: ", NULL);
    expect_sound();
}

static void test_heap(void **state) {
    (void)state;
    char *block = hakmem_alloc(1000);
    struct run *slab = run_of(block);
    struct heap *heap = &lifecycle_attach()->heap;
    struct bin *bin = &heap->bins[slab->class_index];
    expect_sound();
    WITH(bin->slab_count, 2, "a bin's slab_count == slabs on its lists: 2, 1", NULL);
    WITH(bin->empty_count, 1, "a bin's empty_count == slabs that hold all their blocks: 1, 0",
         NULL);
    WITH(heap->spares.count, heap->spares.count + 1,
         "spares.count == empty slabs of so many pages: ", NULL);
    WITH(heap->spares.low, heap->spares.count + 1, "spares.low <= spares.count: ", NULL);
    WITH(bin->used_blocks, 2, "a bin's used_blocks == blocks that its slabs handed out: 2, 1",
         NULL);
    VIOLATED(list_remove(&slab->bin_link);
             list_push_front(&heap->full, &slab->bin_link), list_remove(&slab->bin_link);
             list_push_front(&bin->partial, &slab->bin_link),
             "on the list of full slabs exactly when it holds no block: ", NULL);
    const uint8_t class_index = slab->class_index;
    VIOLATED(list_remove(&slab->bin_link); list_push_front(&heap->full, &slab->bin_link);
             slab->class_index = UINT8_MAX, list_remove(&slab->bin_link);
             list_push_front(&bin->partial, &slab->bin_link);
             slab->class_index = class_index, "its class is one: 255, 0",
             "a bin's slab_count == slabs on its lists: 1, 0");
    WITH(slab->heap, late_heap(), "the heap is the one whose list it is on: 0x", NULL);
    WITH(slab->class_index, (uint8_t)(slab->class_index + 1),
         "the class is that of its list: ", NULL);
    VIOLATED(page_map_set(slab->start, 1, PAGE_ENTRY_NONE),
             page_map_set(slab->start, 1, page_entry_slab(slab, slab->class_index)),
             "each page's entry is slab and class: 0, ", NULL);
}

static void test_superslab(void **state) {
    (void)state;
    // Three pages of a superslab are in use, one is dirty, the others are fresh.
    options.purge_delay_ms = 3600000;
    char *large = hakmem_alloc(2 * PAGE_BYTES);
    char *freed = hakmem_alloc(PAGE_BYTES + 1);
    hakmem_dealloc(freed);
    struct run *run = run_of(large);
    struct superslab *superslab = page_map_superslab((uintptr_t)large);
    const unsigned place = run_place(run);
    // On a slow machine the tick of that free has aged it.
    superslab->dirty_young |= superslab->dirty_old;
    superslab->dirty_old = 0;
    const uint64_t dirty = superslab->dirty_young;
    assert_int_not_equal(dirty, 0);
    const uint64_t fresh = superslab->zero & (~superslab->zero + 1);
    expect_sound();
    VIOLATED(superslab->dirty_old |= bit(bit_lowest(dirty)), superslab->dirty_old = 0,
             "dirty_young and dirty_old are disjoint: ", NULL);
    VIOLATED(superslab->zero |= bit(bit_lowest(dirty)), superslab->zero &= ~dirty,
             "dirty and zero are disjoint: ", NULL);
    VIOLATED(superslab->zero &= ~fresh, superslab->zero |= fresh,
             "dirty and zero together are free: ", NULL);
    WITH(superslab->longest, superslab->longest + 1, "longest == longest stretch of free: ", NULL);
    VIOLATED(superslab->stuck |= fresh, superslab->stuck = 0,
             "stuck pages are neither free nor in a run: ", NULL);
    struct list *dirty_list = superslab->dirty_link.previous;
    VIOLATED(list_remove(&superslab->dirty_link),
             list_push_front(dirty_list, &superslab->dirty_link),
             "on the dirty list exactly when a page is dirty or stuck: ", NULL);
    WITH(superslab->run_start, superslab->run_start | fresh,
         "run_start and free are disjoint: ", "a run has a descriptor: ");
    WITH(superslab->purging, bit(place), "pages being purged are in no run: ", NULL);
    WITH(superslab->movable, bit(place), "no run has a descriptor that may move: ", NULL);
    WITH(superslab->run_start, superslab->run_start & ~bit(place),
         "each page is in a run, free, stuck or being purged: ", NULL);
    WITH(run->start, run->start + PAGE_BYTES, "a run starts where its place is: 0x", NULL);
    WITH(run->page_count, 0, "a run lies within the superslab: ",
         "each page is in a run, free, stuck or being purged: ");
    const uintptr_t page = superslab->start + bit_lowest(fresh) * PAGE_BYTES;
    VIOLATED(page_map_set(page, 1, page_entry(0, PAGE_KIND_LARGE)),
             page_map_set(page, 1, PAGE_ENTRY_NONE), "a free page has no entry: ", NULL);
    VIOLATED(page_map_set_superslab(superslab->start, NULL),
             page_map_set_superslab(superslab->start, superslab), "its address leads to it: 0, 0x",
             NULL);
}

static void test_overlapping_runs(void **state) {
    (void)state;
    char *first = hakmem_alloc(2 * PAGE_BYTES);
    char *second = hakmem_alloc(2 * PAGE_BYTES);
    assert_ptr_equal(second, first + 2 * PAGE_BYTES);
    expect_sound();
    WITH(run_of(first)->page_count, 3, "runs do not overlap: ", NULL);
}

static void test_arena(void **state) {
    (void)state;
    struct superslab *superslab = page_map_superslab((uintptr_t)hakmem_alloc(PAGE_BYTES + 1));
    struct list *all = superslab->all_link.previous;
    expect_sound();
    VIOLATED(list_remove(&superslab->all_link), list_push_front(all, &superslab->all_link),
             "arena 0: superslab_count == superslabs on the list: 1, 0", NULL);
    WITH(arena_state.dirty_pages, arena_state.dirty_pages + 1,
         "dirty_pages == dirty pages of all: ", NULL);
    WITH(arena_state.used_pages, arena_state.used_pages + 1,
         "used_pages == pages of all in runs: ", NULL);
    struct list *head = superslab->length_link.previous;
    VIOLATED(list_remove(&superslab->length_link), list_push_front(head, &superslab->length_link),
             "on a list of lengths exactly when a page is free: ",
             "arena 0: lengths tells the lists that are not empty: ");
}

static void test_huge(void **state) {
    (void)state;
    setenv("HAKMEM_PURGE_DELAY_MS", "10000", 1);
    char *block = hakmem_alloc(5 * MIB);
    char *kept_block = hakmem_alloc(9 * MIB);
    struct huge *huge = huge_find((uintptr_t)block);
    struct huge *kept = huge_find((uintptr_t)kept_block);
    hakmem_dealloc(kept_block);
    assert_int_equal(kept->state, HUGE_KEPT);
    expect_sound();
    WITH(huge->state, HUGE_KEPT, "the state is that of its list: 2, 1", NULL);
    WITH(huge->usable_bytes, huge->mapped_bytes + 1, "usable_bytes <= mapped_bytes: ", NULL);
    WITH(huge->mapped_bytes, huge->mapped_bytes + 4096,
         "live_bytes == bytes on the live list: ", NULL);
    WITH(kept->mapped_bytes, kept->mapped_bytes + 4096,
         "kept_bytes == bytes on the kept list: ", NULL);
    VIOLATED(page_map_set(huge->start, 1, page_entry(77, PAGE_KIND_HUGE)),
             page_map_set(huge->start, 1, page_entry(huge->number, PAGE_KIND_HUGE)),
             "a live block's pages carry its number: ", NULL);
    VIOLATED(page_map_set(kept->start, 1, page_entry(kept->number, PAGE_KIND_HUGE)),
             page_map_set(kept->start, 1, PAGE_ENTRY_NONE), "a kept mapping has no entry: ", NULL);
    WITH(kept->number, kept->number + 1, "its number leads to it: 0x", NULL);
}

static void test_magazine(void **state) {
    (void)state;
    struct thread_cache *cache = lifecycle_attach();
    const uint64_t class_index = size_class_index(100);
    // A class that is used now and then has no node.
    for (unsigned i = 0; i < 1000; i++) {
        hakmem_dealloc(hakmem_alloc(100));
    }
    struct magazine *magazine = &cache->magazines[class_index];
    void **node = magazine->node;
    assert_non_null(node);
    const unsigned floor = atomic_load_relaxed(&magazine->floor);
    expect_sound();
    WITH(cache->top[PAGE_KIND_SLAB + class_index], node - 1, "top is in its node: 0x", NULL);
    WITH(node[floor], (void *)node, "the slot at the floor is NULL: 0x", NULL);
    WITH(magazine->depot_count, 1, "depot_count == nodes in the depot: 1, 0", NULL);
    WITH(magazine->depot_low, 1, "depot_low <= depot_count: 1, 0", NULL);
    WITH(cache->capacity_bytes, 1, "capacity_bytes == bytes the magazines may cache: 1, ", NULL);
    struct magazine *unused = &cache->magazines[SIZE_CLASS_COUNT - 1];
    assert_null(unused->node);
    WITH(unused->capacity, 5, "without a node there is no capacity: 5, 0", NULL);
    WITH(unused->depot, node, "without a node there is no depot: 0x", NULL);
}

static void test_registry(void **state) {
    (void)state;
    struct thread_cache *cache = lifecycle_attach();
    expect_sound();
    WITH(cache_count_in_use, 2, "caches in use are counted: 2, 1", NULL);
    WITH(cache->state, CACHE_UNUSED, "caches in use are counted: 1, 0",
         "each cache is in use or waits: 0, 1");
    WITH(registry_state.kept_count, 1, "kept_count == caches that keep blocks: 0, 1", NULL);
    WITH(registry_state.kept_bytes, 7, "kept_bytes == what these may hold: 0, 7", NULL);
    WITH(cache->heap.id, 1000, "a heap's id was given by the registry: 1000, 2", NULL);
}

static void test_metadata(void **state) {
    (void)state;
    lifecycle_attach();
    expect_sound();
    void *piece = metadata_alloc(64);
    metadata_free(piece, 64);
    expect_sound();
    WITH(metadata_state.gap_lengths, metadata_state.gap_lengths ^ 2,
         "gap_lengths tells the lists that are not empty: ", NULL);
    metadata_free(piece, 64);
    expect_lines("metadata 0: freed pieces are part of what was handed out: ", NULL, __FILE__,
                 __LINE__);
}

static void test_lines_are_bounded(void **state) {
    (void)state;
    struct thread_cache *cache = lifecycle_attach();
    for (unsigned i = 0; i < SIZE_CLASS_COUNT; i++) {
        cache->heap.bins[i].slab_count += 1;
        cache->heap.bins[i].empty_count += 1;
    }
    for (unsigned round = 0; round < 2; round++) {
        stderr_begin();
        assert_int_equal(check_all(), 2 * SIZE_CLASS_COUNT);
        const char *text = stderr_end();
        char more[64];
        snprintf(more, sizeof more, "hakmem: check: and %d more\n",
                 2 * SIZE_CLASS_COUNT - CHECK_LINES_MAX);
        assert_int_equal(lines_in(text), CHECK_LINES_MAX + 1);
        assert_non_null(strstr(text, more));
    }
}

// However often threads tick, and however long a check takes, most of the time is the program's.
static void test_checks_at_ticks_leave_time(void **state) {
    (void)state;
    struct bin *bin = &lifecycle_attach()->heap.bins[0];
    bin->slab_count += 1;  // shows which ticks check
    stderr_begin();
    const uint64_t begin = os_ticks();
    uint64_t end = begin;
    uint64_t checking = 0;
    uint64_t longest = 0;
    for (unsigned checks = 0; checks < 20;) {
        const uint64_t before = end;
        const size_t violations = check_at_tick();
        end = os_ticks();
        if (violations != 0) {
            checks++;
            checking += end - before;
            longest = end - before > longest ? end - before : longest;
        }
    }
    stderr_end();
    bin->slab_count -= 1;
    // Behind the longest the pause may not be over.
    assert_true(2 * (checking - longest) < end - begin);
}

// ---- Turns of several threads

static void *check_in_turn(void *context) {
    *(size_t *)context = check_at_tick();
    return NULL;
}

static void sleep_ms(unsigned ms) {
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

// The turn of a check that takes long is not another's but in the child of a fork, which has no such thread.
static void test_one_thread_checks(void **state) {
    (void)state;
    struct bin *bin = &lifecycle_attach()->heap.bins[0];
    bin->slab_count += 1;
    stderr_begin();
    lock_acquire(&arena_state.lock);
    pthread_t thread;
    size_t violations = 0;
    require(pthread_create(&thread, NULL, check_in_turn, &violations) == 0);
    sleep_ms(800);  // longer than the turn once was
    assert_int_equal(check_at_tick(), 0);
    const pid_t child = fork();
    if (child == 0) {
        lock_release(&arena_state.lock);
        _exit(check_at_tick() == 0);
    }
    lock_release(&arena_state.lock);
    require(pthread_join(thread, NULL) == 0);
    stderr_end();
    bin->slab_count -= 1;
    assert_true(violations != 0);
    int status = -1;
    require(waitpid(child, &status, 0) == child);
    assert_int_equal(status, 0);
}

// Where the process goes on on another machine, whose counter began later.
static void test_pauses_end_where_the_counter_goes_back(void **state) {
    (void)state;
    const uint64_t ahead_ticks = os_ticks() + (UINT64_C(1) << 50);
    struct pause pause = {0};
    assert_true(pause_is_over(&pause));
    pause_begin(&pause, os_ticks(), 3, UINT64_C(1) << 40, UINT64_MAX);
    assert_false(pause_is_over(&pause));
    atomic_store_relaxed(&pause.since_ticks, ahead_ticks);
    assert_true(pause_is_over(&pause));
    pause_begin(&pause, ahead_ticks, 3, 0, UINT64_MAX);
    assert_true(pause_is_over(&pause));
    pause_begin(&pause, os_ticks() - (UINT64_C(1) << 40), 3, 0, UINT64_MAX);
    assert_false(pause_is_over(&pause));
    pause_begin(&pause, os_ticks() - (UINT64_C(1) << 40), 3, 0, 1);
    assert_true(pause_is_over(&pause));
}

int main(int argument_count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slab),
        cmocka_unit_test(test_heap),
        cmocka_unit_test(test_superslab),
        cmocka_unit_test(test_overlapping_runs),
        cmocka_unit_test(test_arena),
        cmocka_unit_test(test_huge),
        cmocka_unit_test(test_magazine),
        cmocka_unit_test(test_registry),
        cmocka_unit_test(test_metadata),
        cmocka_unit_test(test_one_thread_checks),
        cmocka_unit_test(test_pauses_end_where_the_counter_goes_back),
        cmocka_unit_test(test_lines_are_bounded),
        cmocka_unit_test(test_checks_at_ticks_leave_time),
    };
    return run_isolated(argument_count, arguments, tests, ARRAY_COUNT(tests));
}
