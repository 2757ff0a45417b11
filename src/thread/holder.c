#include "thread/holder.h"

#include "heap/slab.h"
#include "thread/cache.h"

static bool is_between(void *const *from, void *const *to, uintptr_t address) {
    while (from < to && (uintptr_t)*from != address) {
        from++;
    }
    return from < to;
}

static bool is_in_magazine(struct thread_cache *cache, uint64_t class_index, uintptr_t address) {
    const struct magazine *magazine = &cache->magazines[class_index];
    if (magazine->node == NULL) {
        return false;
    }
    bool found = is_between(first_of(magazine), top_of(cache, class_index), address);
    for (void **full = magazine->depot; !found && full != NULL; full = (void **)full[0]) {
        found = is_between(full + 1, full + NODE_SLOTS, address);
    }
    return found;
}

enum block_holder holder_find(const struct run *slab, uintptr_t start) {
    struct heap *heap = atomic_load_relaxed(&((struct run *)(uintptr_t)slab)->heap);
    struct thread_cache *cache = thread_cache;
    if (heap == NULL || !cache_is_real(cache)) {
        return HOLDER_UNKNOWN;
    }
    const int index = slab_index(slab, start);
    if (index >= 0 && slab_is_quarantined(slab, (unsigned)index)) {
        return HOLDER_QUARANTINE;
    }
    if (cache->checked) {
        return HOLDER_PROGRAM;  // then no thread has magazines
    }
    if (is_in_magazine(cache, slab->class_index, start)) {
        return HOLDER_CACHE;
    }
    return heap == &cache->heap ? HOLDER_PROGRAM : HOLDER_UNKNOWN;
}
