#include "base/text.h"
#include "control/stats.h"
#include "heap/heap.h"
#include "heap/huge.h"
#include "space/arena.h"
#include "thread/lifecycle.h"

static size_t report_layer(const char *layer, uint64_t id, size_t violations) {
    if (violations != 0) {
        struct text line;
        text_clear(&line);
        text_string(&line, "hakmem: check: ");
        text_string(&line, layer);
        text_string(&line, " ");
        text_unsigned(&line, id);
        text_string(&line, ": ");
        text_unsigned(&line, violations);
        text_string(&line, " invariants violated\n");
        text_flush(&line, 2);
    }
    return violations;
}

static size_t check_heap(struct heap *heap) {
    lock_acquire(&heap->lock);
    const size_t violations = heap_check(heap);
    lock_release(&heap->lock);
    return report_layer("heap", heap->id, violations);
}

size_t check_all(void) {
    lifecycle_start();
    size_t violations = check_heap(late_heap());
    for (struct thread_cache *cache = lifecycle_caches(); cache != NULL; cache = cache->next_all) {
        violations += check_heap(&cache->heap);
    }
    if (cache_is_real(thread_cache)) {
        violations +=
            report_layer("thread cache", thread_cache->heap.id, cache_check(thread_cache));
    }
    violations += report_layer("arena", 0, arena_check());
    violations += report_layer("huge blocks", 0, huge_check());
    return violations;
}
