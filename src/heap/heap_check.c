#include "heap/heap_check.h"

#include "base/check.h"
#include "config/options.h"
#include "heap/heap_purge.h"
#include "heap/slab.h"
#include "space/page_map.h"

void heap_class_totals(const struct heap *heap, uint64_t class_index,
                       struct heap_class_totals *totals) {
    const struct bin *bin = &heap->bins[class_index];
    const struct size_class *size_class = &size_classes[class_index];
    totals->slab_bytes = (uint64_t)bin->slab_count * size_class->slab_pages * PAGE_BYTES;
    totals->used_blocks = bin->used_blocks;
    totals->free_blocks = (uint64_t)bin->slab_count * size_class->block_count - bin->used_blocks;
}

// What is announced of a slab and was not freed twice.
static unsigned count_remote(const struct run *slab) {
    _Atomic(uint64_t) *const remote_bits =
        whole_load(&((struct run *)(uintptr_t)slab)->remote_bits);
    unsigned count = 0;
    for (unsigned w = 0; w < slab_words(slab); w++) {
        count += bit_count(atomic_load_relaxed(&remote_bits[w]) &
                           ~atomic_load_relaxed(&slab->free_bits[w]) & slab_word_blocks(slab, w));
    }
    return count;
}

void heap_count_returning(const struct heap *heap, uint64_t *counts) {
    // Others push in front meanwhile; none of these leaves the list without the lock.
    const struct run *slab = atomic_load_acquire(&((struct heap *)(uintptr_t)heap)->remote_slabs);
    for (; slab != NULL;
         slab = atomic_load_relaxed(&((struct run *)(uintptr_t)slab)->remote_next)) {
        if (atomic_load_relaxed(&((struct run *)(uintptr_t)slab)->heap) != NULL) {
            counts[slab->class_index] += count_remote(slab);
        }
    }
    for (uint64_t i = 0; heap->quarantine != NULL && i < options.quarantine_blocks; i++) {
        const uintptr_t block = (uintptr_t)atomic_load_relaxed(&heap->quarantine[i]);
        const struct run *held_by = block == 0 ? NULL : slab_find(block);
        if (held_by != NULL) {
            counts[held_by->class_index]++;
        }
    }
}

struct bin_totals {
    uint32_t slab_count, empty_count;
    uint64_t used_blocks;
};

// False when the slab is no slab of this heap and class, so that nothing more can be said of it.
static bool check_owner(struct check *check, const struct heap *heap, const struct run *slab,
                        uint64_t class_index) {
    const size_t before = check->violations;
    const struct heap *owner = atomic_load_relaxed(&((struct run *)(uintptr_t)slab)->heap);
    check->where = slab->start;
    check_equal(check, "the heap is the one whose list it is on", (uintptr_t)owner,
                (uintptr_t)heap);
    check_equal(check, "the class is that of its list", slab->class_index, class_index);
    check_equal(check, "its address leads to it", (uintptr_t)arena_find(slab->start),
                (uintptr_t)slab);
    for (unsigned page = 0; page < slab->page_count; page++) {
        check_equal(check, "each page's entry is slab and class",
                    page_map_get(slab->start + page * PAGE_BYTES),
                    page_entry_slab(slab, class_index));
    }
    return check->violations == before;
}

// `class_index`: of a bin's list; SIZE_CLASS_COUNT: the list of full slabs, of any class.
static size_t check_list(const struct heap *heap, const struct list *head, uint64_t class_index,
                         struct bin_totals *totals) {
    struct check check = {"slab", 0, 0};
    size_t violations = 0;
    const bool is_full_list = class_index == SIZE_CLASS_COUNT;
    for (const struct list *link = head->next; link != head; link = link->next) {
        const struct run *slab = CONTAINER_OF(link, struct run, bin_link);
        const uint64_t class_here = is_full_list ? slab->class_index : class_index;
        check_that(&check, class_here < SIZE_CLASS_COUNT, "its class is one", class_here, 0);
        if (class_here >= SIZE_CLASS_COUNT) {
            continue;
        }
        totals[class_here].slab_count += 1;
        totals[class_here].empty_count += slab_is_empty(slab);
        totals[class_here].used_blocks += slab->block_count - slab->free_count;
        if (check_owner(&check, heap, slab, class_here)) {
            check_that(&check, (slab->free_count == 0) == is_full_list,
                       "on the list of full slabs exactly when it holds no block", slab->free_count,
                       is_full_list);
            violations += slab_check(slab);
        }
    }
    return violations + check.violations;
}

// What a slab keeps that may go back by age has an age, and a heap with such tells its visitors.
static void check_ages(struct check *check, const struct heap *heap) {
    const bool is_told = heap->put_since_purge || (!heap_round_is_over(heap) && heap->round.now);
    for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        const struct list *head = &heap->bins[i].partial;
        for (const struct list *link = head->next; link != head; link = link->next) {
            const struct run *slab = CONTAINER_OF(link, struct run, bin_link);
            const bool has_age = slab_is_for_rounds(slab);
            check_that(check, has_age || slab_loose_bytes(slab) == 0, "loose bytes have an age",
                       slab->start, slab_loose_bytes(slab));
            // With purge_slab_block_min set, slabs of smaller blocks were passed over.
            const bool takes_all =
                options_origin(OPTION_purge_slab_block_min) == OPTION_ORIGIN_DEFAULT;
            check_that(check,
                       !takes_all || heap->refused_wait != 0 ||
                           slab->purge_age != SLAB_PURGE_REFUSED,
                       "a slab with pages that the system refused is told of", slab->start,
                       slab->purge_age);
            check_that(check, !takes_all || !has_age || is_told, "a slab with an age is told of",
                       slab->start, slab->purge_age);
        }
    }
}

// Where a walk goes on: at a slab of its class's list, or at the list.
static void check_walk(struct check *check, const struct heap *heap, const struct slab_walk *walk) {
    if (walk->link != NULL) {
        const struct list *head = &heap->bins[walk->class_index].partial;
        const struct list *link = head->next;
        while (link != head && link != walk->link) {
            link = link->next;
        }
        check_equal(check, "a walk goes on in the list of its class", (uintptr_t)link,
                    (uintptr_t)walk->link);
    }
}

size_t heap_check(const struct heap *heap) {
    struct check check = {"heap", heap->id, 0};
    struct bin_totals totals[SIZE_CLASS_COUNT] = {{0, 0, 0}};
    uint32_t spares = 0;
    size_t violations = check_list(heap, &heap->full, SIZE_CLASS_COUNT, totals);
    for (size_t i = 0; i < SIZE_CLASS_COUNT; i++) {
        const struct bin *bin = &heap->bins[i];
        violations += check_list(heap, &bin->partial, i, totals);
        check_equal(&check, "a bin's slab_count == slabs on its lists", bin->slab_count,
                    totals[i].slab_count);
        check_equal(&check, "a bin's empty_count == slabs that hold all their blocks",
                    bin->empty_count, totals[i].empty_count);
        spares += size_classes[i].slab_pages == SPARE_PAGES ? totals[i].empty_count : 0;
    }
    check_equal(&check, "spares.count == empty slabs of so many pages", heap->spares.count, spares);
    check_that(&check, heap->spares.low <= spares, "spares.low <= spares.count", heap->spares.low,
               spares);
    check_walk(&check, heap, &heap->round.walk);
    check_walk(&check, heap, &heap->excess_walk);
    // Sums and ages tell something of sound slabs alone.
    if (violations + check.violations == 0) {
        check_ages(&check, heap);
    }
    for (size_t i = 0; i < SIZE_CLASS_COUNT && violations + check.violations == 0; i++) {
        check_equal(&check, "a bin's used_blocks == blocks that its slabs handed out",
                    heap->bins[i].used_blocks, totals[i].used_blocks);
    }
    return violations + check.violations;
}
