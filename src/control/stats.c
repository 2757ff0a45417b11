#include "control/stats.h"

#include "base/bits.h"
#include "base/text.h"
#include "heap/guarded.h"
#include "heap/heap.h"
#include "heap/heap_check.h"
#include "heap/huge.h"
#include "heap/large.h"
#include "os/os.h"
#include "space/arena.h"
#include "space/metadata.h"
#include "thread/lifecycle.h"

static void add_counters(struct stats *stats, const struct counters *counters) {
    for (size_t i = 0; i < COUNTER_COUNT; i++) {
        stats->counter[i] +=
            atomic_load_relaxed(&((struct counters *)(uintptr_t)counters)->value[i]);
    }
}

static void add_heap(struct stats *stats, struct heap *heap, const struct thread_cache *cache,
                     uint64_t *returning) {
    lock_acquire(&heap->lock);
    heap_count_returning(heap, returning);
    for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        struct heap_class_totals totals;
        heap_class_totals(heap, i, &totals);
        stats->class[i].slab_bytes += totals.slab_bytes;
        stats->class[i].free_blocks += totals.free_blocks;
        stats->class[i].live_blocks += totals.used_blocks;
        stats->class[i].cached_blocks += cache == NULL ? 0 : cache_block_count(cache, i);
    }
    lock_release(&heap->lock);
}

static void copy_os_counters(struct stats *stats) {
    static const enum counter counter_of[OS_CALL_COUNT] = {
        [OS_MMAP] = COUNTER_os_mmap,         [OS_MUNMAP] = COUNTER_os_munmap,
        [OS_MPROTECT] = COUNTER_os_mprotect, [OS_MADVISE] = COUNTER_os_madvise,
        [OS_MREMAP] = COUNTER_os_mremap,     [OS_FUTEX] = COUNTER_os_futex,
        [OS_CLOCK] = COUNTER_os_clock,       [OS_RANDOM] = COUNTER_os_random,
        [OS_MINCORE] = COUNTER_os_mincore,
    };
    for (size_t i = 0; i < OS_CALL_COUNT; i++) {
        stats->counter[counter_of[i]] = atomic_load_relaxed(&os_call_counters.calls[i]);
    }
    stats->counter[COUNTER_os_failures] = atomic_load_relaxed(&os_call_counters.failures);
}

void stats_collect_counters(struct stats *stats) {
    for (size_t i = 0; i < COUNTER_COUNT; i++) {
        stats->counter[i] = 0;
    }
    add_counters(stats, &process_counters);
    lifecycle_start();
    add_counters(stats, &late_heap()->counters);
    for (struct thread_cache *cache = lifecycle_caches(); cache != NULL; cache = cache->next_all) {
        add_counters(stats, &cache->heap.counters);
    }
    copy_os_counters(stats);
}

void stats_collect(struct stats *stats) {
    lifecycle_start();
    *stats = (struct stats){0};
    stats_collect_counters(stats);
    uint64_t returning[SIZE_CLASS_COUNT] = {0};
    add_heap(stats, late_heap(), NULL, returning);
    for (struct thread_cache *cache = lifecycle_caches(); cache != NULL; cache = cache->next_all) {
        const bool may_hold = cache_may_hold_blocks(atomic_load_acquire(&cache->state));
        add_heap(stats, &cache->heap, may_hold ? cache : NULL, returning);
        stats->gauge[GAUGE_cache_structure_bytes] += may_hold ? cache_structure_bytes(cache) : 0;
    }

    uint64_t *gauge = stats->gauge;
    for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        struct stats_class *class = &stats->class[i];
        class->block_bytes = size_classes[i].block_bytes;
        // A slab may go to another heap, and a thread may cache blocks of any, so these meet in the sums alone.
        const uint64_t back = least_u64(returning[i], class->live_blocks);
        class->live_blocks -= back;
        class->free_blocks += back;
        class->cached_blocks =
            least_u64(class->cached_blocks + lifecycle_lost_blocks(i), class->live_blocks);
        class->live_blocks -= class->cached_blocks;
        gauge[GAUGE_live_bytes] += class->live_blocks * class->block_bytes;
        gauge[GAUGE_live_blocks] += class->live_blocks;
        gauge[GAUGE_cached_bytes] += class->cached_blocks * class->block_bytes;
        gauge[GAUGE_slab_bytes] += class->slab_bytes;
        gauge[GAUGE_slab_free_bytes] += class->free_blocks * class->block_bytes;
    }
    struct large_totals large;
    large_totals(&large);
    struct huge_totals huge;
    huge_totals(&huge);
    struct guarded_totals guarded;
    guarded_totals(&guarded);
    struct arena_totals arena;
    arena_totals(&arena);
    gauge[GAUGE_large_blocks] = large.count;
    gauge[GAUGE_large_bytes] = large.bytes;
    gauge[GAUGE_huge_blocks] = huge.live_count;
    gauge[GAUGE_huge_bytes] = huge.usable_bytes;
    gauge[GAUGE_huge_cached_bytes] = huge.kept_bytes;
    gauge[GAUGE_guarded_blocks] = guarded.live_count;
    gauge[GAUGE_guarded_bytes] = guarded.live_bytes;
    gauge[GAUGE_live_bytes] += large.bytes + huge.usable_bytes + guarded.live_bytes;
    gauge[GAUGE_live_blocks] += large.count + huge.live_count + guarded.live_count;
    gauge[GAUGE_dirty_bytes] = arena.dirty_bytes;
    gauge[GAUGE_mapped_bytes] =
        arena.mapped_bytes + huge.live_bytes + huge.kept_bytes + guarded.pool_bytes;
    gauge[GAUGE_mapped_bytes_max] =
        greatest_u64(gauge[GAUGE_mapped_bytes], arena.mapped_bytes_max + huge.live_bytes_max);
    gauge[GAUGE_metadata_bytes] = metadata_bytes();
    gauge[GAUGE_heaps] = lifecycle_count();
    gauge[GAUGE_heaps_in_use] = lifecycle_count_in_use();
}

// ---- Printing ----

static void print_row(int descriptor, const char *name, uint64_t value, const char *unit) {
    struct text line;
    text_clear(&line);
    text_string(&line, "  ");
    text_string(&line, name);
    text_pad(&line, 24);
    text_unsigned(&line, value);
    text_string(&line, " ");
    text_string(&line, unit);
    text_string(&line, "\n");
    text_flush(&line, descriptor);
}

static void print_class(int descriptor, const struct stats_class *class) {
    const uint64_t values[] = {class->block_bytes, class->slab_bytes, class->live_blocks,
                               class->cached_blocks, class->free_blocks};
    struct text line;
    text_clear(&line);
    for (size_t i = 0; i < ARRAY_COUNT(values); i++) {
        text_pad(&line, 2 + i * 14);
        text_unsigned(&line, values[i]);
    }
    text_string(&line, "\n");
    text_flush(&line, descriptor);
}

void stats_print(int descriptor) {
    struct stats stats;
    stats_collect(&stats);
    os_write(descriptor, "hakmem statistics\n", 18);
#define COUNTER(name, unit, help)                                          \
    if (stats.counter[COUNTER_##name] != 0) {                              \
        print_row(descriptor, #name, stats.counter[COUNTER_##name], unit); \
    }
#define GAUGE(name, unit, help) print_row(descriptor, #name, stats.gauge[GAUGE_##name], unit);
#include "config/counters.def"
    static const char heading[] =
        "  block bytes   slab bytes    live blocks   cached        free\n";
    os_write(descriptor, heading, sizeof heading - 1);
    for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        if (stats.class[i].slab_bytes != 0) {
            print_class(descriptor, &stats.class[i]);
        }
    }
}
