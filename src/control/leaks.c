#include "control/leaks.h"

#include "base/text.h"
#include "control/stats.h"
#include "heap/guarded_report.h"
#include "heap/quarantine.h"
#include "os/file.h"
#include "thread/lifecycle.h"

static void settle_heap(struct heap *heap) {
    lock_acquire(&heap->lock);
    heap_end_quarantine(heap);
    heap_collect(heap);
    lock_release(&heap->lock);
}

// Free blocks that are not yet in their slab's bitmap would count as live.
static void settle(void) {
    if (cache_is_real(thread_cache)) {
        cache_empty(thread_cache);
    }
    lifecycle_empty_kept();
    settle_heap(late_heap());
    // Twice: what reached the former heap of a slab that has moved is handed on to its present one.
    for (unsigned round = 0; round < 2; round++) {
        for (struct thread_cache *cache = lifecycle_caches(); cache != NULL;
             cache = cache->next_all) {
            settle_heap(&cache->heap);
        }
    }
}

static void print_row(int descriptor, uint64_t count, const char *kind, uint64_t bytes,
                      const char *unit) {
    struct text line;
    text_clear(&line);
    text_string(&line, "hakmem: leaks:   ");
    text_unsigned(&line, count);
    text_string(&line, kind);
    text_unsigned(&line, bytes);
    text_string(&line, unit);
    text_flush(&line, descriptor);
}

static void print_heading(int descriptor, const struct leaks *leaks) {
    struct text line;
    text_clear(&line);
    text_string(&line, "hakmem: leaks: process ");
    text_unsigned(&line, os_process_id());
    text_string(&line, " ends with ");
    text_unsigned(&line, leaks->blocks);
    text_string(&line, " live blocks, ");
    text_unsigned(&line, leaks->bytes);
    text_string(&line, " bytes\n");
    text_flush(&line, descriptor);
}

static void print_guarded(const struct guarded_slot *slot, void *context) {
    const int descriptor = *(const int *)context;
    struct text line;
    text_clear(&line);
    text_string(&line, "hakmem: leaks:   ");
    text_unsigned(&line, slot->bytes);
    text_string(&line, " bytes at ");
    text_hex(&line, slot->start);
    text_string(&line, "\n");
    text_flush(&line, descriptor);
    guarded_print_stacks(descriptor, slot);
}

struct leaks leaks_report(int descriptor) {
    lifecycle_start();
    settle();
    struct stats stats;
    stats_collect(&stats);
    const struct leaks leaks = {stats.gauge[GAUGE_live_blocks], stats.gauge[GAUGE_live_bytes]};
    print_heading(descriptor, &leaks);
    for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        const struct stats_class *class = &stats.class[i];
        if (class->live_blocks != 0) {
            print_row(descriptor, class->live_blocks, " of ", class->block_bytes, " bytes each\n");
        }
    }
    if (stats.gauge[GAUGE_large_blocks] != 0) {
        print_row(descriptor, stats.gauge[GAUGE_large_blocks], " large, of ",
                  stats.gauge[GAUGE_large_bytes], " bytes together\n");
    }
    if (stats.gauge[GAUGE_huge_blocks] != 0) {
        print_row(descriptor, stats.gauge[GAUGE_huge_blocks], " huge, of ",
                  stats.gauge[GAUGE_huge_bytes], " bytes together\n");
    }
    if (stats.gauge[GAUGE_guarded_blocks] != 0) {
        print_row(descriptor, stats.gauge[GAUGE_guarded_blocks], " guarded, of ",
                  stats.gauge[GAUGE_guarded_bytes], " bytes together\n");
        guarded_visit(print_guarded, &descriptor);
    }
    return leaks;
}
