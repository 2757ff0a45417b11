#include "space/arena_pages.h"

#include "base/bits.h"
#include "config/options.h"
#include "os/events.h"
#include "os/lock.h"
#include "os/os.h"
#include "space/huge_pages.h"
#include "space/metadata.h"
#include "space/page_map.h"

// In the section of the root for readers outside of the process (control/inspect.c).
struct arena arena_state __attribute__((section(".data"))) = {.lock = LOCK_INITIAL(LOCK_RANK_ARENA),
                                                              .purge_due_ms = UINT64_MAX};

void arena_prepare_lists(void) {
    if (unlikely(!arena_state.ready)) {
        for (size_t i = 0; i < ARRAY_COUNT(arena_state.by_length); i++) {
            list_init(&arena_state.by_length[i]);
        }
        list_init(&arena_state.all);
        list_init(&arena_state.dirty);
        arena_state.ready = true;
    }
}

_Atomic(uint32_t) arena_peak_pages;  // relaxed: see the header

static uint64_t held_pages(void) {
    return arena_state.used_pages + arena_dirty_pages();
}

uint64_t arena_sum_pages(void) {
    return held_pages() + (atomic_load_relaxed(&arena_state.beside_bytes) >> PAGE_SHIFT);
}

void arena_note_sum(void) {
    arena_state.sum_peak_pages = greatest_u64(arena_state.sum_peak_pages, arena_sum_pages());
}

void arena_forget_old_room(uint64_t now_ms) {
    if (os_is_long_ago(arena_state.room_ms, option_live(purge_delay_ms), now_ms)) {
        arena_state.room_pages = 0;
    }
}

// What made room and is wanted again counts as if it had stayed: so a program that takes runs and huge blocks by turns pays for
// that once.
static MIDDLE_PATH void count_room_wanted(uint64_t new_pages) {
    arena_forget_old_room(os_clock_ms_locked());
    const uint64_t back_pages = least_u64(new_pages, arena_state.room_pages);
    arena_state.room_pages -= back_pages;
    arena_state.sum_peak_pages += back_pages;
}

void arena_count_used(uint64_t pages, uint64_t new_pages) {
    excess_needed(&arena_state.excess, new_pages * PAGE_BYTES);
    runs_delay_needed(&arena_state.delay, new_pages * PAGE_BYTES);
    if (unlikely(arena_state.room_pages != 0) && new_pages != 0) {
        count_room_wanted(new_pages);
    }
    arena_state.used_pages += pages;
    if (unlikely(held_pages() > atomic_load_relaxed(&arena_peak_pages))) {
        atomic_store_relaxed(&arena_peak_pages, (uint32_t)held_pages());
    }
    arena_note_sum();
}

void arena_refile(struct superslab *superslab) {
    const uint32_t longest = bit_longest_stretch(superslab->free);
    if (longest != superslab->longest) {
        list_remove(&superslab->length_link);
        if (superslab->longest != 0 && list_is_empty(&arena_state.by_length[superslab->longest])) {
            arena_state.lengths &= ~bit(superslab->longest - 1);
        }
        superslab->longest = (uint8_t)longest;
        if (longest != 0) {
            list_push_front(&arena_state.by_length[longest], &superslab->length_link);
            arena_state.lengths |= bit(longest - 1);
        }
    }
    const bool is_dirty = (superslab_dirty(superslab) | superslab->stuck) != 0;
    if (is_dirty && list_is_empty(&superslab->dirty_link)) {
        list_push_back(&arena_state.dirty, &superslab->dirty_link);
    } else if (!is_dirty) {
        list_remove(&superslab->dirty_link);
    }
}

uint64_t arena_claim_pages(struct superslab *superslab, uint64_t mask) {
    if (superslab_is_spare(superslab)) {
        arena_state.spare_count--;
    }
    arena_count_dirty(-(uint64_t)bit_count(superslab_dirty(superslab) & mask));
    const uint64_t used = mask & ~superslab->zero;
    superslab->free &= ~mask;
    superslab->zero &= ~mask;
    superslab->dirty_young &= ~mask;
    superslab->dirty_old &= ~mask;
    arena_refile(superslab);
    return used;
}

void arena_release_pages(struct superslab *superslab, uint64_t mask) {
    superslab->free |= mask;
    superslab->dirty_young |= mask;
    arena_count_dirty(bit_count(mask));
    arena_refile(superslab);
    arena_note_dirty();
}

struct superslab *arena_map_superslab(void) {
    struct superslab *superslab = arena_state.recycled;
    if (superslab != NULL) {
        arena_state.recycled = (struct superslab *)superslab->start;
    } else {
        superslab = metadata_alloc(sizeof *superslab);
        if (superslab == NULL) {
            return NULL;
        }
        list_init(&superslab->all_link);
        list_init(&superslab->length_link);
        list_init(&superslab->dirty_link);
    }
    char *start = os_map(SUPERSLAB_BYTES, SUPERSLAB_BYTES);
    if (start == NULL || !page_map_cover((uintptr_t)start, SUPERSLAB_BYTES)) {
        if (start != NULL) {
            os_unmap(start, SUPERSLAB_BYTES);
        }
        whole_store(&superslab->start, (uintptr_t)arena_state.recycled);
        arena_state.recycled = superslab;
        return NULL;
    }
    whole_store(&superslab->start, (uintptr_t)start);
    superslab->free = superslab->zero = ALL_PAGES;
    superslab->dirty_young = superslab->dirty_old = superslab->stuck = 0;
    atomic_store_relaxed(&superslab->run_start, 0);
    superslab->longest = 0;
    huge_pages_begin(superslab);
    arena_state.superslab_count++;
    arena_state.superslab_count_max =
        greatest_u64(arena_state.superslab_count_max, arena_state.superslab_count);
    arena_state.spare_count++;
    event_record(EVENT_superslab_mapped, (uintptr_t)start, arena_state.superslab_count);
    page_map_set_superslab(superslab->start, superslab);
    list_push_back(&arena_state.all, &superslab->all_link);
    arena_refile(superslab);
    return superslab;
}

bool arena_unmap_superslab(struct superslab *superslab) {
    const bool was_spare = superslab_is_spare(superslab);
    page_map_set_superslab(superslab->start, NULL);
    if (!os_unmap((void *)superslab->start, SUPERSLAB_BYTES)) {
        page_map_set_superslab(superslab->start, superslab);
        return false;
    }
    arena_count_dirty(-(uint64_t)bit_count(superslab_dirty(superslab)));
    superslab->dirty_young = superslab->dirty_old = 0;
    arena_state.guard_count -= bit_count(superslab->stuck);
    superslab->free = superslab->zero = superslab->stuck = 0;
    list_remove(&superslab->all_link);
    arena_refile(superslab);
    arena_state.spare_count -= was_spare;
    arena_state.superslab_count--;
    event_record(EVENT_superslab_unmapped, superslab->start, arena_state.superslab_count);
    huge_pages_end(superslab);
    whole_store(&superslab->start, (uintptr_t)arena_state.recycled);
    arena_state.recycled = superslab;
    return true;
}
