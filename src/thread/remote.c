#include "thread/remote.h"

#include "base/bits.h"
#include "heap/misuse.h"

static void publish_entry(struct thread_cache *cache, struct remote_entry *entry) {
    const uint64_t bits = entry->bits;
    entry->bits = 0;
    entry->place.bytes = 0;
    heap_publish(entry->slab, entry->word, bits);
    heap_count(&cache->heap, COUNTER_remote_publishes, 1);
    heap_count(&cache->heap, COUNTER_remote_blocks, bit_count(bits));
}

void remote_free(struct thread_cache *cache, struct run *slab, void *block) {
    const int index = slab_index(slab, (uintptr_t)block);
    if (unlikely(index < 0)) {
        misuse_report(MISUSE_INVALID_FREE, (uintptr_t)block);
        return;
    }
    if (unlikely(slab_is_free(slab, (unsigned)index) ||
                 cache_freed_lately(cache, slab->class_index, (uintptr_t)block))) {
        misuse_report_freed(MISUSE_INVALID_FREE, slab, (unsigned)index);
        return;
    }
    const uint32_t word = (uint32_t)index / 64;
    const uint64_t mask = bit((unsigned)index % 64);
    // Fibonacci hashing of the word's place.
    const uint64_t place =
        ((uintptr_t)slab / sizeof *slab * 64 + word) * UINT64_C(0x9E3779B97F4A7C15);
    struct remote_entry *entry = &cache->remote[place >> cache->remote_shift];
    if (entry->bits != 0 && (entry->slab != slab || entry->word != word)) {
        publish_entry(cache, entry);
    }
    if (unlikely((entry->bits & mask) != 0)) {
        misuse_report_freed(MISUSE_INVALID_FREE, slab, (unsigned)index);
        return;
    }
    if (entry->bits == 0) {
        *entry = (struct remote_entry){slab, word, 0, slab_word(slab, word)};
    }
    if (likely(!cache_is_diverted(cache))) {
        cache->remote_last = entry;
    }
    entry->bits |= mask;
    if (entry->bits == UINT64_MAX) {
        publish_entry(cache, entry);
    }
}

void remote_publish(struct thread_cache *cache) {
    for (size_t i = 0; i < REMOTE_ENTRIES; i++) {
        if (cache->remote[i].bits != 0) {
            publish_entry(cache, &cache->remote[i]);
        }
    }
}
