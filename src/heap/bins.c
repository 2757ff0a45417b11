#include "heap/bins.h"

#include <limits.h>

#include "base/bits.h"
#include "config/options.h"
#include "heap/heap_purge.h"
#include "heap/misuse.h"
#include "os/events.h"

// ---- Empty slabs ----

// Behind all others: used last, so that it can go when another one empties. The slab is on no list.
static void add_empty(struct heap *heap, struct run *slab) {
    struct bin *bin = bin_of(heap, slab);
    list_push_back(&bin->partial, &slab->bin_link);
    bin->empty_count++;
    heap->spares.count += bin_may_be_spare(slab);
}

// All blocks are held: one that is on its way back as well was freed twice.
static void require_nothing_remote(struct run *slab) {
    if (likely(atomic_load_relaxed(&slab->remote_summary) == 0)) {
        return;
    }
    for (unsigned w = 0; w < slab_words(slab); w++) {
        const uint64_t bits = atomic_exchange_acquire(&slab->remote_bits[w], 0);
        if (unlikely(bits != 0)) {
            misuse_report_freed_twice(slab, w, bits);
        }
    }
}

// Takes an empty slab from the heap, which is to be none or another's.
static void leave(struct heap *heap, struct run *slab) {
    heap_uncount(heap, slab);
    bin_remove_empty(heap, slab);
    bin_unlink(heap, slab);
    bin_of(heap, slab)->slab_count--;
}

// The slab is the heap's, and on none of its lists yet.
static void admit(struct heap *heap, struct run *slab) {
    slab->heap_id = heap->id;
    // What a former run left in it is given back although no block of it ever came back.
    heap->put_since_purge |= slab_is_for_rounds(slab);
    heap->put_since_early |= slab_is_for_rounds(slab);
    if (unlikely(slab->purge_age == SLAB_PURGE_REFUSED)) {
        heap_note_refused(heap);
    }
    heap_count_in(heap, slab);
    bin_of(heap, slab)->slab_count++;
}

static void join(struct heap *heap, struct run *slab) {
    admit(heap, slab);
    add_empty(heap, slab);
}

static void destroy_slab(struct heap *heap, struct run *slab) {
    require_nothing_remote(slab);
    if (unlikely(slab->purged != SLAB_PURGED_LONG_AGO)) {
        heap_note_gone(heap, slab);
    }
    leave(heap, slab);
    heap->spares.released += bin_may_be_spare(slab);
    heap_spend(heap, slab->page_count * PAGE_BYTES);
    heap_count(heap, COUNTER_slabs_released, 1);
    slab_destroy(slab);
}

// ---- Spare slabs ----

static bool is_retained(const struct heap *heap, uint64_t class_index) {
    for (size_t i = 0; i < RETAINED_CLASSES; i++) {
        if (heap->retained[i] == class_index) {
            return true;
        }
    }
    return false;
}

// Empty slabs that a class keeps in any case.
static unsigned kept_of(const struct heap *heap, uint64_t class_index) {
    return is_retained(heap, class_index) ? (unsigned)option_live(retain_slabs) : 0;
}

// Those of SPARE_PAGES that are kept in any case.
static unsigned retained_count(const struct heap *heap) {
    unsigned count = 0;
    for (size_t i = 0; i < RETAINED_CLASSES; i++) {
        const uint8_t class_index = heap->retained[i];
        if (class_index != SIZE_CLASS_COUNT &&
            size_classes[class_index].slab_pages == SPARE_PAGES) {
            count +=
                (unsigned)least_u64(heap->bins[class_index].empty_count, option_live(retain_slabs));
        }
    }
    return count;
}

// Whether an empty slab of a class that has more than it keeps stays all the same. Half of excess_bytes in free blocks is as much
// as slabs may keep without taking from what empty runs may (heap_purge_excess).
static bool is_spare(const struct heap *heap, const struct run *slab) {
    return unlikely(heap->spares.most != 0) && bin_may_be_spare(slab) &&
           heap->spares.count <= heap->spares.most + retained_count(heap) &&
           heap->loose_bytes <= option_live(excess_bytes) / 2 && !heap->keeps_too_much &&
           option_live(retain_slabs) != 0;
}

// A slab was made anew of what was another heap's: had the last one that went stayed, it need not have been.
static void note_made(struct heap *heap, const struct run *slab) {
    struct spares *spares = &heap->spares;
    if (bin_may_be_spare(slab) && spares->released > 0 && option_live(retain_slabs) != 0) {
        spares->released--;
        spares->most += slab->heap_id != 0 && slab->heap_id != heap->id;
    }
}

// Slabs that a full one made room in come behind empty ones: only so many are looked at.
#define SPARE_LOOKS 64

// One of those that emptied last, which are at the end of the list, or NULL.
static struct run *empty_slab(const struct bin *bin) {
    const struct list *link = bin->partial.previous;
    for (unsigned i = 0; i < SPARE_LOOKS && link != &bin->partial; i++, link = link->previous) {
        struct run *slab = CONTAINER_OF(link, struct run, bin_link);
        if (slab_is_empty(slab)) {
            return slab;
        }
    }
    return NULL;
}

// Of the class that has most empty slabs beyond what it keeps.
static struct run *spare_slab(const struct heap *heap) {
    const struct bin *most = NULL;
    unsigned count = 0;
    for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        const struct bin *bin = &heap->bins[i];
        if (bin->empty_count > count && size_classes[i].slab_pages == SPARE_PAGES &&
            bin->empty_count > count + kept_of(heap, i)) {
            most = bin;
            count = bin->empty_count - kept_of(heap, i);
        }
    }
    return most == NULL ? NULL : empty_slab(most);
}

bool heap_use_spare(struct heap *heap, uint64_t class_index) {
    if (heap->spares.most == 0 || size_classes[class_index].slab_pages != SPARE_PAGES) {
        return false;
    }
    struct run *slab = spare_slab(heap);
    if (slab == NULL) {
        return false;
    }
    require_nothing_remote(slab);
    leave(heap, slab);
    slab = slab_remake(slab, heap, heap->id, class_index);
    if (slab == NULL) {
        heap_count(heap, COUNTER_slabs_released, 1);
        return false;
    }
    join(heap, slab);
    heap_count(heap, COUNTER_slabs_remade, 1);
    return true;
}

// A slab that empties takes so many more with it, those for which no budget was left: a flush is not to pay for all of them.
#define RELEASED_BESIDE 2

// Destroys empty slabs of a class beyond `keep`, `most` of them, but for spare ones. Most are at the end of the list.
static void release_empty(struct heap *heap, struct bin *bin, unsigned keep, unsigned most) {
    struct list *link = bin->partial.previous;
    while (bin->empty_count > keep && link != &bin->partial && heap->budget_bytes != 0 &&
           most != 0) {
        struct run *slab = CONTAINER_OF(link, struct run, bin_link);
        link = link->previous;
        if (slab_is_empty(slab)) {
            if (is_spare(heap, slab)) {
                break;
            }
            destroy_slab(heap, slab);
            most--;
        }
    }
}

void heap_release_unkept(struct heap *heap) {
    for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        release_empty(heap, &heap->bins[i], kept_of(heap, i), UINT_MAX);
    }
}

void heap_decay_spares(struct heap *heap) {
    struct spares *spares = &heap->spares;
    // What is kept in any case is no spare that was not needed.
    const uint32_t idle = spares->low - (uint32_t)least_u64(spares->low, retained_count(heap));
    spares->most -= (uint32_t)least_u64(spares->most, idle);
    const size_t budget_bytes = heap->budget_bytes;
    heap->budget_bytes = HEAP_BUDGET_CALL;
    heap_release_unkept(heap);
    if (unlikely(heap->budget_bytes == 0) && heap->overfull == NULL) {
        heap->overfull = heap;
    }
    heap->budget_bytes = budget_bytes;
    spares->released = 0;
    spares->low = spares->count;
    heap_tell_bytes(heap);
}

void heap_release_empty(struct heap *heap, bool keeps_retained) {
    heap->spares.most = 0;
    for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        if (unlikely(heap->bins[i].empty_count != 0)) {
            release_empty(heap, &heap->bins[i], keeps_retained ? kept_of(heap, i) : 0, UINT_MAX);
        }
    }
    heap->spares.released = 0;
    heap_tell_bytes(heap);
}

// ---- Slabs in use ----

struct run *bin_slab_with_blocks(struct heap *heap, uint64_t class_index) {
    struct bin *bin = &heap->bins[class_index];
    if (!list_is_empty(&bin->partial)) {
        return CONTAINER_OF(bin->partial.next, struct run, bin_link);
    }
    struct run *slab = slab_create(heap, heap->id, class_index);
    if (slab != NULL) {
        note_made(heap, slab);
        if (unlikely(heap->gone_kib != 0) && slab->tail_dirty) {
            heap_note_again(heap, slab);
        }
        join(heap, slab);
        heap_count(heap, COUNTER_slabs_created, 1);
    }
    return slab;
}

bool heap_has_blocks(const struct heap *heap, uint64_t class_index) {
    return !list_is_empty(&heap->bins[class_index].partial);
}

// A slab of the class has emptied and stays; of the class for which that is longest ago none does any more.
static void note_retained(struct heap *heap, uint8_t class_index) {
    if (is_retained(heap, class_index)) {
        return;
    }
    const uint8_t oldest = heap->retained[heap->retained_next];
    if (oldest != SIZE_CLASS_COUNT) {
        release_empty(heap, &heap->bins[oldest], 0, RELEASED_BESIDE);
    }
    heap->retained[heap->retained_next] = class_index;
    heap->retained_next = (uint8_t)((heap->retained_next + 1) % RETAINED_CLASSES);
}

MIDDLE_PATH void bin_file_empty(struct heap *heap, struct run *slab) {
    struct bin *bin = bin_of(heap, slab);
    bin_unlink(heap, slab);
    add_empty(heap, slab);
    const unsigned keep = (unsigned)option_live(retain_slabs);
    if (bin->empty_count <= keep || heap->budget_bytes == 0 || is_spare(heap, slab)) {
        note_retained(heap, slab->class_index);
        return;
    }
    destroy_slab(heap, slab);
    if (likely(heap->spares.most == 0)) {
        release_empty(heap, bin, keep, RELEASED_BESIDE);
    }
}

MIDDLE_PATH void bin_file_partial(struct heap *heap, struct run *slab) {
    list_remove(&slab->bin_link);
    list_push_back(&bin_of(heap, slab)->partial, &slab->bin_link);
}

// ---- From heap to heap ----

// A slab that holds less than this part of its blocks stays: it would soon be looked for again.
#define MOVED_PART 8

// Only so many are looked at from either end: both heaps are locked, and one may have 100,000 slabs that hold a block or two.
// What came back last is behind.
#define MOVED_LOOKS 16

static bool is_worth_moving(const struct run *slab) {
    return slab->free_count * MOVED_PART >= slab->block_count;
}

static struct run *slab_to_move(const struct bin *bin) {
    const struct list *front = bin->partial.next;
    const struct list *back = bin->partial.previous;
    for (unsigned i = 0; i < MOVED_LOOKS && front != &bin->partial; i++, front = front->next) {
        struct run *slab = CONTAINER_OF(front, struct run, bin_link);
        if (is_worth_moving(slab)) {
            return slab;
        }
    }
    for (unsigned i = 0; i < MOVED_LOOKS && back != &bin->partial; i++, back = back->previous) {
        struct run *slab = CONTAINER_OF(back, struct run, bin_link);
        if (is_worth_moving(slab)) {
            return slab;
        }
    }
    return NULL;
}

bool heap_move_slab(struct heap *from, struct heap *to, uint64_t class_index) {
    struct run *slab = slab_to_move(&from->bins[class_index]);
    if (slab == NULL) {
        return false;
    }
    if (slab_is_empty(slab)) {
        leave(from, slab);
        join(to, slab);
    } else {
        heap_uncount(from, slab);
        bin_unlink(from, slab);
        bin_of(from, slab)->slab_count--;
        admit(to, slab);
        list_push_front(&bin_of(to, slab)->partial, &slab->bin_link);
    }
    atomic_store_relaxed(&slab->heap, to);
    heap_tell_bytes(from);
    heap_tell_bytes(to);
    heap_count(to, COUNTER_slabs_moved, 1);
    event_record(EVENT_slab_moved, slab->start, page_owner(to->id, class_index));
    return true;
}
