#include "space/huge_pages.h"

#include "base/bits.h"
#include "config/options.h"
#include "space/page_map.h"

// So many superslabs without huge pages are looked at, among so many of the newest.
#define SAMPLES 4
#define SAMPLES_AMONG 64
// Nearly all: fifteen of sixteen bytes in use are resident.
#define DENSE_PARTS 16

struct density {
    size_t used_bytes, resident_bytes;
};

// What is free and not yet given back is resident as well: it does not count.
static void add(struct density *density, const struct superslab *superslab) {
    const size_t dirty_bytes =
        bit_count(superslab->dirty_young | superslab->dirty_old) * PAGE_BYTES;
    const size_t resident_bytes = os_resident_bytes((void *)superslab->start, SUPERSLAB_BYTES);
    const uint64_t used = ~(superslab->free | superslab->stuck | superslab->purging);
    density->used_bytes += bit_count(used) * PAGE_BYTES;
    density->resident_bytes += resident_bytes - least_u64(resident_bytes, dirty_bytes);
}

static bool is_dense(const struct superslab *newest, const struct list *superslabs) {
    struct density density = {0, 0};
    unsigned samples = 0;
    const struct list *link = superslabs->previous;
    for (unsigned i = 0; i < SAMPLES_AMONG && link != superslabs && samples < SAMPLES; i++) {
        const struct superslab *superslab = CONTAINER_OF(link, const struct superslab, all_link);
        link = link->previous;
        if (superslab != newest && superslab->huge_pages == OS_HUGE_PAGES_NEVER) {
            add(&density, superslab);
            samples++;
        }
    }
    return density.used_bytes != 0 &&
           density.resident_bytes >= density.used_bytes / DENSE_PARTS * (DENSE_PARTS - 1);
}

enum os_huge_pages huge_pages_wish_of_block(void) {
    switch (options.huge_pages) {
    case huge_pages_always:
        return OS_HUGE_PAGES_ALWAYS;
    case huge_pages_never:
        return OS_HUGE_PAGES_NEVER;
    default:
        return OS_HUGE_PAGES_DEFAULT;
    }
}

void huge_pages_advise(struct superslab *superslab, const struct list *superslabs, uint64_t count) {
    enum os_huge_pages wish = huge_pages_wish_of_block();
    if (options.huge_pages == huge_pages_adaptive) {
        const bool refuses = count <= SMALL_HEAP_BYTES / SUPERSLAB_BYTES ||
                             count % HUGE_PAGES_PROBE == 0 || !is_dense(superslab, superslabs);
        wish = refuses ? OS_HUGE_PAGES_NEVER : OS_HUGE_PAGES_ALWAYS;
    }
    if (wish != superslab->huge_pages) {
        os_advise_huge_pages((void *)superslab->start, SUPERSLAB_BYTES, wish);
        superslab->huge_pages = (uint8_t)wish;
    }
}

bool huge_pages_purge(void *start, size_t bytes) {
    if (page_map_superslab((uintptr_t)start)->huge_pages != OS_HUGE_PAGES_NEVER) {
        os_split_huge_pages(start, bytes);
    }
    return os_purge(start, bytes);
}
