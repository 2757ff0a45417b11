#include "space/huge_pages.h"

#include "base/bits.h"
#include "config/options.h"
#include "space/page_map.h"
#include "space/space_hooks.h"

// So many superslabs without huge pages are looked at, among so many of the newest.
#define SAMPLES 4
#define SAMPLES_AMONG 64

// What is free and not yet given back is resident as well: it does not count.
static void add(struct growth_signals *signals, const struct superslab *superslab) {
    const size_t dirty_bytes = bit_count(superslab_dirty(superslab)) * PAGE_BYTES;
    const size_t resident_bytes = os_resident_bytes((void *)superslab->start, SUPERSLAB_BYTES);
    const uint64_t used = ~(superslab->free | superslab->stuck | superslab->purging);
    signals->used_bytes += bit_count(used) * PAGE_BYTES;
    signals->resident_bytes += resident_bytes - least_u64(resident_bytes, dirty_bytes);
}

// Of the latest superslab whose huge page was slow, until the next look. Relaxed: stored by who took it into use, taken by whoever looks next under
// the arena's lock, a look later at worst; pairs with nothing.
static _Atomic(uint64_t) touch_ns;

static struct growth_signals signals_of(const struct superslab *newest,
                                        const struct list *superslabs) {
    struct growth_signals signals = {.touch_ns = atomic_exchange_relaxed(&touch_ns, 0)};
    unsigned samples = 0;
    const struct list *link = superslabs->previous;
    for (unsigned i = 0; i < SAMPLES_AMONG && link != superslabs && samples < SAMPLES; i++) {
        const struct superslab *superslab = CONTAINER_OF(link, const struct superslab, all_link);
        link = link->previous;
        if (superslab != newest && superslab->huge_pages == OS_HUGE_PAGES_NEVER) {
            add(&signals, superslab);
            samples++;
        }
    }
    return signals;
}

// Relaxed: a superslab that is taken into use while a thread begins may miss it; pairs with nothing.
static _Atomic(uint32_t) heap_count;

void huge_pages_count_heap(void) {
    atomic_add_relaxed(&heap_count, 1);
}

static bool is_small(uint64_t count) {
    const uint64_t heaps = least_u64(atomic_load_relaxed(&heap_count), SMALL_HEAPS_MOST);
    return count <= SMALL_HEAP_BYTES / SUPERSLAB_BYTES * greatest_u64(heaps, 1);
}

// Those of a small heap never do, nor does one in so many, whatever is learned.
static bool may_ask(uint64_t count) {
    return option_live(learn) != 0 && !is_small(count) && count % HUGE_PAGES_PROBE != 0;
}

// Superslabs to come until the next look, after one that showed no reason to ask: a part of those there are, so that looks
// at a heap that grows without huge pages are few. Written under the arena's lock.
#define LOOKS_PART 32
static uint64_t unlooked_count;

static bool asks(const struct superslab *superslab, const struct list *superslabs, uint64_t count) {
    growth_hook *hook = atomic_load_relaxed(&space_hooks.growth);
    if (hook == NULL || !may_ask(count)) {
        return false;
    }
    if (unlooked_count != 0) {
        unlooked_count--;
        return false;
    }
    const struct growth_signals signals = signals_of(superslab, superslabs);
    const bool wish = hook(&signals);
    unlooked_count = wish ? 0 : count / LOOKS_PART;
    return wish;
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

// Superslabs with `hollow` set. Relaxed: a bound that may be missed by as many as there are threads; pairs with nothing.
static _Atomic(uint32_t) hollow_count;

static bool clear_hollow(struct superslab *superslab) {
    const bool hollow = atomic_load_relaxed(&superslab->hollow) != 0;
    if (hollow) {
        atomic_store_relaxed(&superslab->split, 0);
        atomic_store_relaxed(&superslab->hollow, 0);
        atomic_sub_relaxed(&hollow_count, 1);
    }
    return hollow;
}

static void make_hollow(struct superslab *superslab) {
    if (atomic_load_relaxed(&superslab->hollow) == 0 &&
        atomic_load_relaxed(&hollow_count) < HOLLOW_MOST &&
        atomic_exchange_relaxed(&superslab->hollow, 1) == 0) {
        atomic_add_relaxed(&hollow_count, 1);
        os_advise_huge_pages((void *)superslab->start, SUPERSLAB_BYTES, OS_HUGE_PAGES_NEVER);
    }
}

void huge_pages_begin(struct superslab *superslab) {
    superslab->huge_pages = OS_HUGE_PAGES_DEFAULT;
}

void huge_pages_end(struct superslab *superslab) {
    clear_hollow(superslab);
}

void huge_pages_advise(struct superslab *superslab, const struct list *superslabs, uint64_t count) {
    enum os_huge_pages wish = huge_pages_wish_of_block();
    if (options.huge_pages == huge_pages_adaptive) {
        wish = asks(superslab, superslabs, count) ? OS_HUGE_PAGES_ALWAYS : OS_HUGE_PAGES_NEVER;
    }
    if (clear_hollow(superslab) || wish != superslab->huge_pages) {
        os_advise_huge_pages((void *)superslab->start, SUPERSLAB_BYTES, wish);
        superslab->huge_pages = (uint8_t)wish;
    }
}

void huge_pages_touch(struct superslab *superslab, void *start) {
    if (options.huge_pages != huge_pages_adaptive ||
        superslab->huge_pages != OS_HUGE_PAGES_ALWAYS) {
        return;
    }
    const uint64_t ns = os_touch_ns(start);
    if (ns >= HUGE_PAGE_SLOW_NS) {
        atomic_store_relaxed(&touch_ns, ns);
        make_hollow(superslab);
    }
}

// A huge page that a fork shares is not split while both processes have it, and tried again with each purge. Relaxed: set
// before a fork, by its thread alone; a purge at that moment may count as split what is not. Pairs with nothing.
static _Atomic(uint8_t) has_forked;

void huge_pages_fork(void) {
    atomic_store_relaxed(&has_forked, 1);
}

// In a hollow superslab no huge page comes after the first split of its part of one. A longer one than it is one part.
static void split(struct superslab *superslab, void *start, size_t bytes) {
    const size_t huge_bytes = os_huge_page_bytes();
    const size_t offset = (uintptr_t)start - superslab->start;
    const unsigned first = (unsigned)(offset / huge_bytes);
    const unsigned last = (unsigned)((offset + bytes - 1) / huge_bytes);
    const uint8_t parts = (uint8_t)bit_range(first, last - first + 1);
    if ((atomic_load_relaxed(&superslab->split) & parts) == parts) {
        return;
    }
    os_split_huge_pages(start, bytes);
    if (atomic_load_relaxed(&superslab->hollow) != 0 && atomic_load_relaxed(&has_forked) == 0) {
        atomic_or_relaxed(&superslab->split, parts);
    }
}

bool huge_pages_may_back(const void *start) {
    struct superslab *superslab = page_map_superslab((uintptr_t)start);
    return superslab->huge_pages != OS_HUGE_PAGES_NEVER &&
           atomic_load_relaxed(&superslab->hollow) == 0;
}

bool huge_pages_purge(void *start, size_t bytes) {
    struct superslab *superslab = page_map_superslab((uintptr_t)start);
    if (superslab->huge_pages != OS_HUGE_PAGES_NEVER) {
        if (options.huge_pages == huge_pages_adaptive && bytes != SUPERSLAB_BYTES) {
            make_hollow(superslab);
        }
        split(superslab, start, bytes);
    }
    return os_purge(start, bytes);
}
