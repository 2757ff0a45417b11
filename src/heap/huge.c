#include "heap/huge.h"

#include "base/atomic.h"
#include "base/bits.h"
#include "base/check.h"
#include "config/counters.h"
#include "config/options.h"
#include "heap/block_pages.h"
#include "heap/kept.h"
#include "heap/leaving.h"
#include "heap/zeroing.h"
#include "os/events.h"
#include "os/lock.h"
#include "os/os.h"
#include "space/arena.h"
#include "space/arena_pages.h"
#include "space/arena_purge.h"
#include "space/page_map.h"

// The only table.
#define table huge_table_state

static size_t pages_of(size_t bytes) {
    return align_up(bytes, PAGE_BYTES) >> PAGE_SHIFT;
}

// A live block, of whose pages those of the first `entered_bytes` are in the page map already.
static void make_live(struct huge *huge, size_t entered_bytes) {
    const size_t entered = pages_of(entered_bytes);
    const size_t pages = pages_of(huge->usable_bytes);
    huge_move_to(huge, HUGE_LIVE);
    table.live_bytes += huge->mapped_bytes;
    table.live_count++;
    table.peak_bytes = greatest_u64(table.peak_bytes, table.live_bytes);
    page_map_set(huge->start + entered * PAGE_BYTES, pages - entered,
                 page_entry(huge->number, PAGE_KIND_HUGE));
}

static size_t guard_bytes(void) {
    return options.guard_gaps ? PAGE_BYTES : 0;
}

static bool map_new(struct huge *huge, size_t usable_bytes, size_t alignment, bool asks) {
    const size_t guard = guard_bytes();
    const size_t wished = greatest_u64(alignment, block_pages_alignment(usable_bytes, asks));
    char *start = os_map(usable_bytes + guard, wished);
    if (unlikely(start == NULL) && wished > alignment) {
        // There may be addresses for the block, and none for what an alignment takes beside it at first.
        start = os_map(usable_bytes + guard, alignment);
    }
    if (start == NULL) {
        return false;
    }
    if (!page_map_cover((uintptr_t)start, usable_bytes)) {
        os_unmap(start, usable_bytes + guard);
        return false;
    }
    whole_store_release(&huge->start, (uintptr_t)start);
    whole_store(&huge->usable_bytes, usable_bytes);
    huge->mapped_bytes = usable_bytes + guard;
    block_pages_map(huge, asks);
    return true;
}

// Behind a live block that has one; what the system refuses is only weaker. Where more than ARENA_GUARDS_MOST
// have one, no further page is made inaccessible: as arena_take() does.
static void set_guard(const struct huge *huge) {
    const size_t guard = huge_guard_bytes(huge);
    if (guard != 0 && table.live_count <= ARENA_GUARDS_MOST) {
        os_guard((void *)(huge->start + huge->usable_bytes), guard);
    }
}

// The mapping of `huge` now has `usable_bytes`, and its guard if it has one; its start may have changed. The lock is held; the page map has
// entries for the first `entered_bytes`, and no others: who grows a block of gigabytes page by page enters each page once.
static void settle(struct huge *huge, size_t usable_bytes, size_t entered_bytes) {
    huge->mapped_bytes = usable_bytes + huge_guard_bytes(huge);
    whole_store(&huge->usable_bytes, usable_bytes);
    table.live_count--;  // make_live counts it again
    make_live(huge, entered_bytes);
}

// Kept and live mappings together stay below the highest live total there was.
static void trim_kept(void) {
    kept_trim(table.peak_bytes - table.live_bytes);
}

// Kept mappings would stand beside the arena's growth since the last look.
static void follow_arena(void) {
    const uint32_t peak_pages = atomic_load_relaxed(&arena_peak_pages);
    const uint64_t grown_bytes = (uint64_t)(peak_pages - table.arena_peak_pages) * PAGE_BYTES;
    const uint64_t kept_bytes = kept_unrefused_bytes();
    table.arena_peak_pages = peak_pages;
    kept_trim(kept_bytes - least_u64(grown_bytes, kept_bytes));
}

// Free pages of the arena would stand beside what is now more than ever before.
static void unlock_and_make_room(void) {
    leaving_unmap_and_unlock();
    arena_make_room();
}

// A guard is lengthened with the block, and becomes a part of it.
static bool grow_in_place(struct huge *huge, size_t usable_bytes) {
    const uintptr_t piece = huge_last_piece(huge);
    const size_t before = huge->usable_bytes;
    const size_t guard = huge_guard_bytes(huge);
    if (!page_map_cover(huge->start, usable_bytes) ||
        (guard != 0 && !os_commit((void *)(huge->start + before), guard))) {
        return false;
    }
    if (!os_resize((void *)piece, huge->start + before + guard - piece,
                   huge->start + usable_bytes + guard - piece)) {
        set_guard(huge);
        return false;
    }
    table.live_bytes -= huge->mapped_bytes;
    settle(huge, usable_bytes, before);
    set_guard(huge);
    return true;
}

// Where the mapping's piece number `index` starts; where it ends for the number of pieces.
static uintptr_t piece_start(const struct huge *huge, unsigned index) {
    if (index == 0) {
        return huge->start;
    }
    return index <= huge->seam_count ? huge->seams[index - 1] : huge->start + huge->usable_bytes;
}

// How many bytes the first piece has where a block moves to `mapped_bytes`: the last one is lengthened.
static size_t first_piece_bytes(const struct huge *huge, size_t mapped_bytes) {
    return huge->seam_count == 0 ? mapped_bytes : huge->seams[0] - huge->start;
}

// Here and below `mapped_bytes` are those of the new place, a guard included.
//
// Moves the first piece to the reservation at `destination`. What is mapped behind it is given up with it when the system
// refuses.
static bool move_first_piece(struct huge *huge, uintptr_t destination, size_t mapped_bytes) {
    const size_t moved_bytes = first_piece_bytes(huge, mapped_bytes);
    const enum os_moved moved = os_move((void *)huge->start, piece_start(huge, 1) - huge->start,
                                        (void *)destination, moved_bytes, false);
    if (moved == OS_MOVE_REFUSED) {
        os_unmap((void *)destination, mapped_bytes);
    } else if (moved == OS_DESTINATION_LOST && moved_bytes != mapped_bytes) {
        os_unmap((void *)(destination + moved_bytes), mapped_bytes - moved_bytes);
    }
    return moved == OS_MOVED;
}

// Moves the other pieces to `destination`, where the last one is lengthened so that all have `mapped_bytes`. Those that the
// system refuses are copied.
static void move_other_pieces(struct huge *huge, uintptr_t destination, size_t mapped_bytes) {
    const uintptr_t start = huge->start;
    for (unsigned i = 1; i <= huge->seam_count; i++) {
        const uintptr_t from = piece_start(huge, i);
        const size_t bytes = piece_start(huge, i + 1) - from;
        const uintptr_t to = destination + (from - start);
        const size_t moved_bytes = i == huge->seam_count ? destination + mapped_bytes - to : bytes;
        if (os_move((void *)from, bytes, (void *)to, moved_bytes, true) != OS_MOVED) {
            __builtin_memcpy((void *)to, (void *)from, bytes);
            struct huge *part = leaving_add_part(from, bytes);
            if (part != NULL) {
                part->uncleared = options.zero_on_free != 0;
            } else {
                os_unmap((void *)from, bytes);
            }
        }
    }
    for (unsigned i = 0; i < huge->seam_count; i++) {
        huge->seams[i] = huge->seams[i] - start + destination;
    }
    whole_store_release(&huge->start, destination);
}

// Address space for the first piece, and memory for the others, which may have to be copied. NULL when the system refuses.
static char *map_destination(const struct huge *huge, size_t mapped_bytes, size_t alignment) {
    if (huge->seam_count == 0) {
        return os_reserve_aligned(mapped_bytes, alignment);
    }
    char *destination = os_map(mapped_bytes, alignment);
    if (destination != NULL && !os_guard(destination, first_piece_bytes(huge, mapped_bytes))) {
        os_unmap(destination, mapped_bytes);
        return NULL;
    }
    return destination;
}

// Entries for wherever the system is likely to put a block that moves and grows: below where it is, where mappings come to lie, or in what it
// leaves.
static bool cover_likely_places(const struct huge *huge, size_t usable_bytes) {
    const uintptr_t below = least_u64(huge->start, 2 * (usable_bytes + PAGE_BYTES));
    // First what refuses a block that is too long: windows that are covered stay.
    return page_map_hold(usable_bytes) &&
           page_map_cover(huge->start - below, below + huge->usable_bytes);
}

// Behind the place that a block has moved to, if it has one. Refused, the old one stays as addresses alone: a mapping that nobody may
// touch is not to be kept for a block.
static void take_guard_along(const struct huge *huge, uintptr_t old_guard) {
    const size_t guard = huge_guard_bytes(huge);
    if (guard != 0) {
        set_guard(huge);
        os_unmap((void *)old_guard, guard);
    }
}

// Where the system has no addresses for a second place as long as the block. Of one piece alone: others move one by one.
SLOW_PATH static bool grow_anywhere(struct huge *huge, size_t usable_bytes) {
    const size_t before = huge->usable_bytes;
    const uintptr_t old_guard = huge->start + before;
    const size_t pages = pages_of(before);
    if (huge->seam_count != 0 || !cover_likely_places(huge, usable_bytes)) {
        return false;
    }
    page_map_clear(huge->start, pages);
    const uintptr_t start = (uintptr_t)os_move_anywhere(
        (void *)huge->start, before, usable_bytes + huge_guard_bytes(huge), PAGE_BYTES);
    if (start == 0) {
        page_map_set(huge->start, pages, page_entry(huge->number, PAGE_KIND_HUGE));
        return false;
    }
    if (unlikely(!page_map_cover_held(start, usable_bytes))) {
        // There is no way back: where it was may be another thread's mapping by now.
        static const char line[] = "hakmem: the system refused memory for a block that has moved\n";
        os_write(2, line, sizeof line - 1);
        os_abort();
    }
    whole_store_release(&huge->start, start);
    table.live_bytes -= huge->mapped_bytes;
    settle(huge, usable_bytes, 0);
    take_guard_along(huge, old_guard);
    count_event(COUNTER_huge_moves, 1);
    return true;
}

static bool grow_by_moving(struct huge *huge, size_t usable_bytes, bool asks) {
    const size_t before = huge->usable_bytes;
    const uintptr_t old_guard = huge->start + before;
    const size_t mapped_bytes = usable_bytes + huge_guard_bytes(huge);
    // Page tables of huge pages move as a whole only there.
    const size_t alignment =
        block_pages_alignment(usable_bytes, asks || huge->asked != HUGE_ASKED_NOT);
    char *destination = map_destination(huge, mapped_bytes, alignment);
    if (destination == NULL) {
        return grow_anywhere(huge, usable_bytes);
    }
    if (!page_map_cover((uintptr_t)destination, usable_bytes)) {
        // Without the flat map the entries want addresses as well, which the second place took. Those of the flat map the system lets
        // nobody write then, wherever the block goes.
        os_unmap(destination, mapped_bytes);
        return page_map_flat == NULL && grow_anywhere(huge, usable_bytes);
    }
    // The old entries go first: once the pages have moved, the old addresses may be anybody's.
    const size_t pages = pages_of(before);
    page_map_clear(huge->start, pages);
    if (!move_first_piece(huge, (uintptr_t)destination, mapped_bytes)) {
        page_map_set(huge->start, pages, page_entry(huge->number, PAGE_KIND_HUGE));
        return false;
    }
    move_other_pieces(huge, (uintptr_t)destination, mapped_bytes);
    table.live_bytes -= huge->mapped_bytes;
    settle(huge, usable_bytes, 0);
    take_guard_along(huge, old_guard);
    count_event(COUNTER_huge_moves, 1);
    return true;
}

// The lock is given up while the tail is unmapped.
static void shrink(struct huge *huge, size_t usable_bytes) {
    const size_t before = huge->usable_bytes;
    const uint8_t seam_count = huge->seam_count;
    const size_t kept_pages = pages_of(usable_bytes);
    const size_t pages = pages_of(before);
    const uintptr_t tail = huge->start + kept_pages * PAGE_BYTES;
    // The entries go first: once the tail is unmapped, its addresses may be anybody's.
    page_map_clear(tail, pages - kept_pages);
    huge_forget_seams(huge, huge->start + usable_bytes);
    table.live_bytes -= huge->mapped_bytes;
    settle(huge, usable_bytes, usable_bytes);
    const uintptr_t end = huge->start + usable_bytes;
    block_pages_split(huge, end);
    struct huge *part = leaving_add_part(end, before - usable_bytes);
    size_t left_bytes = before - usable_bytes;
    if (part != NULL) {
        left_bytes = leaving_unmap(part);
    } else if (os_unmap((void *)end, left_bytes)) {
        left_bytes = 0;
    }
    if (left_bytes != 0) {
        // The longer block still serves.
        table.seam_count += seam_count - huge->seam_count;
        huge->seam_count = seam_count;
        huge_forget_seams(huge, end + left_bytes);
        table.live_bytes -= huge->mapped_bytes;
        settle(huge, usable_bytes + left_bytes, usable_bytes);
    }
}

// Entries that a length wants of the page map stay, and count against limits of data and of strict overcommit, where the reservation to move
// to does not. For so much the system is asked first: what it refuses leaves none.
#define ASKED_FIRST_BYTES (4 * GIB)

static bool may_have(size_t more_bytes) {
    return likely(more_bytes < ASKED_FIRST_BYTES) || os_would_map(more_bytes);
}

// *first: a huge page to touch, of what is new: block_pages_first().
static bool grow(struct huge *huge, size_t usable_bytes, void **first) {
    const size_t before = huge->usable_bytes;
    if (!may_have(usable_bytes - before)) {
        return false;
    }
    block_pages_look(huge);
    const bool asks = block_pages_ask_grown(huge, usable_bytes);
    if (!grow_in_place(huge, usable_bytes) && !grow_by_moving(huge, usable_bytes, asks)) {
        return false;
    }
    block_pages_grow(huge, asks);
    const size_t filled_bytes = kept_fill(huge, before);
    *first = block_pages_first(huge, before + filled_bytes);
    excess_needed(&table.excess, usable_bytes - before - filled_bytes);
    trim_kept();
    return true;
}

// A kept mapping whose end the system unmapped, and refused the rest, has lost its guard: what is its end now becomes one. False where a
// seam lies there: a guard that goes across two pieces could not be lengthened with the block.
SLOW_PATH static bool renew_guard(struct huge *huge) {
    const size_t guard = guard_bytes();
    const uintptr_t end = huge->start + huge->usable_bytes - guard;
    if (huge_last_piece(huge) >= end) {
        return false;
    }
    block_pages_split(huge, end);
    // What it held would stay in memory as long as it is a guard.
    leaving_purge(end, guard);
    whole_store(&huge->usable_bytes, huge->usable_bytes - guard);
    return true;
}

static struct huge *take_kept(size_t usable_bytes, size_t alignment, bool clean) {
    struct huge *huge = kept_take(usable_bytes + guard_bytes(), alignment);
    if (huge == NULL) {
        return NULL;
    }
    const bool lacks_guard = huge_guard_bytes(huge) < guard_bytes();
    if (unlikely(lacks_guard) && !renew_guard(huge)) {
        huge_count_kept(huge, (int64_t)huge->mapped_bytes);  // still on its list
        return NULL;
    }
    block_pages_reuse(huge, clean);
    make_live(huge, 0);
    if (unlikely(lacks_guard)) {
        set_guard(huge);
    }
    count_event(COUNTER_huge_reuses, 1);
    return huge;
}

// *filled_bytes: at its start, of kept mappings; none when it is to be `clean`.
static struct huge *take_new(size_t usable_bytes, size_t alignment, bool clean,
                             size_t *filled_bytes) {
    struct huge *huge = huge_unused();
    if (huge == NULL ||
        !map_new(huge, usable_bytes, alignment, block_pages_ask(usable_bytes, clean))) {
        return NULL;
    }
    make_live(huge, 0);
    set_guard(huge);
    *filled_bytes = clean ? 0 : kept_fill(huge, 0);
    if (*filled_bytes != 0) {
        count_event(COUNTER_huge_reuses, 1);
    }
    excess_needed(&table.excess, usable_bytes - *filled_bytes);
    return huge;
}

void *huge_alloc(size_t bytes, size_t alignment, bool zero) {
    const size_t page_bytes = os_page_bytes();
    if (bytes > HUGE_BYTES_MAX || alignment > HUGE_BYTES_MAX) {
        return NULL;
    }
    if (alignment < PAGE_BYTES) {
        alignment = PAGE_BYTES;
    }
    const size_t usable_bytes = align_up(bytes, page_bytes);
    struct zeroing zeroing = {false, false};
    lock_acquire(&table.lock);
    huge_table_prepare();
    if (zero) {
        zeroing = zeroing_next();
    }
    const bool clean = zero && !zeroing.clears;
    struct huge *huge = take_kept(usable_bytes, alignment, clean);
    size_t dirty_bytes = huge == NULL ? 0 : huge->usable_bytes;
    if (huge == NULL) {
        huge = take_new(usable_bytes, alignment, clean, &dirty_bytes);
    }
    void *first = huge == NULL ? NULL : block_pages_first(huge, dirty_bytes);
    trim_kept();
    unlock_and_make_room();
    if (huge == NULL) {
        return NULL;
    }
    block_pages_touch(huge, first);
    count_event(COUNTER_huge_allocs, 1);
    event_record(EVENT_huge_alloc, huge->start, huge->usable_bytes);
    huge->probed_bytes = 0;
    if (zero) {
        zeroing_do(huge, dirty_bytes, zeroing);
    }
    return (void *)huge->start;
}

struct huge *huge_find(uintptr_t address) {
    const uint64_t entry = page_map_get(address);
    if (page_entry_kind(entry) != PAGE_KIND_HUGE) {
        return NULL;
    }
    return huge_numbered((uint32_t)page_entry_number(entry));
}

size_t huge_freed_bytes(uintptr_t address) {
    size_t bytes = 0;
    // The lock may be this thread's own.
    if (!lock_try_acquire(&table.lock)) {
        return 0;
    }
    for (uint32_t i = 0; bytes == 0 && i < table.chunk_count * HUGE_CHUNK_COUNT; i++) {
        const struct huge *huge = huge_numbered(i);
        if (huge != NULL && huge->start == address && huge->state != HUGE_LIVE) {
            bytes = huge->usable_bytes;
        }
    }
    lock_release(&table.lock);
    return bytes;
}

bool huge_free(struct huge *huge, uintptr_t address) {
    // Not at huge->start: when another thread was first, that may be another block's by now.
    const uint64_t entry = page_entry(huge->number, PAGE_KIND_HUGE);
    if (!page_map_claim(address, entry)) {
        return false;
    }
    // Others may have taken what the first of two frees left: the descriptor then tells of a block that this page is within, or was
    // within when it was claimed. The entry names this descriptor, so it was a live block's at that moment.
    if (unlikely(whole_load_acquire(&huge->start) != address || !page_map_claim_stands(address))) {
        page_map_unclaim(address, entry);
        return false;
    }
    page_map_clear(huge->start, pages_of(huge->usable_bytes));
    count_event(COUNTER_huge_frees, 1);
    event_record(EVENT_huge_free, huge->start, huge->usable_bytes);
    const uint64_t now_ms = os_clock_ms();
    // Cleared memory is what the hardened mode promises of anything freed.
    const enum zeroing_use use = zeroing_use_of(huge);
    const bool cleared = !options.zero_on_free || leaving_purge(huge->start, huge->usable_bytes);
    lock_acquire(&table.lock);
    if (!options.zero_on_free) {
        block_pages_look(huge);
    }
    table.live_bytes -= huge->mapped_bytes;
    table.live_count--;
    zeroing_learn(use);
    follow_arena();
    huge->uncleared = !cleared;
    kept_add(huge, now_ms);
    if (!cleared || option_live(purge_delay_ms) == 0 || option_live(huge_cache_bytes) == 0) {
        kept_trim(0);
    } else {
        const uint64_t bound_bytes =
            excess_bound(&table.excess, table.live_bytes, option_live(huge_cache_bytes));
        const uint64_t bytes = kept_trim(bound_bytes);
        if (bytes != 0) {
            excess_dropped(&table.excess, bytes, bound_bytes);
        }
    }
    leaving_unmap_and_unlock();
    return true;
}

// A guard lies behind the block. More than half of it stays where it is, and what is left of its memory goes back; less is
// the caller's to copy.
SLOW_PATH static bool shrink_before_guard(const struct huge *huge, size_t usable_bytes) {
    if (usable_bytes <= huge->usable_bytes / 2) {
        return false;
    }
    const uintptr_t rest = huge->start + usable_bytes;
    const size_t rest_bytes = huge->usable_bytes - usable_bytes;
    if (!leaving_purge(rest, rest_bytes) && options.zero_on_free) {
        __builtin_memset((void *)rest, 0, rest_bytes);
    }
    return true;
}

bool huge_resize(struct huge *huge, size_t bytes) {
    if (bytes > HUGE_BYTES_MAX) {
        return false;
    }
    size_t usable_bytes = align_up(bytes, os_page_bytes());
    if (usable_bytes == huge->usable_bytes) {
        return true;
    }
    if (usable_bytes < huge->usable_bytes && huge_guard_bytes(huge) != 0) {
        return shrink_before_guard(huge, usable_bytes);
    }
    bool done = true;
    void *first = NULL;
    lock_acquire(&table.lock);
    if (usable_bytes < huge->usable_bytes) {
        shrink(huge, usable_bytes);
    } else {
        done = grow(huge, usable_bytes, &first);
    }
    unlock_and_make_room();
    block_pages_touch(huge, first);
    return done;
}

size_t huge_purge(uint64_t now_ms, bool everything) {
    lock_acquire(&table.lock);
    huge_table_prepare();
    if (!everything) {
        huge_note_time(now_ms);
    }
    const uint64_t delay_ms = option_live(purge_delay_ms);
    if (!everything && (now_ms >= table.decay_due_ms ||
                        os_clock_went_back(table.decay_due_ms, now_ms + delay_ms))) {
        table.decay_due_ms = now_ms + delay_ms;
        excess_decay(&table.excess);
    }
    kept_drop_aged(now_ms, everything ? 0 : delay_ms);
    return leaving_unmap_and_unlock();
}

void huge_make_room(void) {
    lock_acquire(&table.lock);
    huge_table_prepare();
    follow_arena();
    leaving_unmap_and_unlock();
}

void huge_await_unmapping(void) {
    lock_acquire(&table.lock);
    huge_table_prepare();
    leaving_await();
    lock_release(&table.lock);
}

bool huge_has_kept(void) {
    return atomic_load_relaxed(&table.kept_bytes) != 0;
}

void huge_totals(struct huge_totals *totals) {
    lock_acquire(&table.lock);
    totals->live_count = table.live_count;
    totals->usable_bytes = table.live_bytes - table.live_count * guard_bytes();
    totals->live_bytes = table.live_bytes;
    totals->live_bytes_max = table.peak_bytes;
    totals->kept_bytes = atomic_load_relaxed(&table.kept_bytes);
    lock_release(&table.lock);
}

// The entry of a block's page: its own, or a claim while it is being freed, or while a free that came late looks.
static void check_entry(struct check *check, const struct huge *huge, uintptr_t address) {
    const uint64_t entry = page_map_get(address);
    check_that(check,
               entry == page_entry(huge->number, PAGE_KIND_HUGE) ||
                   page_entry_kind(entry) == PAGE_KIND_NONE,
               "a live block's pages carry its number", entry, huge->number);
}

// The descriptors of a list; their mapped bytes and their seams are added up.
static uint64_t check_list(struct check *check, const struct list *head, enum huge_state state,
                           uint64_t *bytes, uint64_t *seams) {
    uint64_t count = 0;
    for (const struct list *link = head->next; link != head; link = link->next) {
        const struct huge *huge = CONTAINER_OF(link, struct huge, link);
        count++;
        check->structure = "huge block";
        check->where = huge->number;
        *seams += huge->seam_count;
        for (unsigned i = 0; i < huge->seam_count; i++) {
            check_that(check,
                       huge->seams[i] > (i == 0 ? huge->start : huge->seams[i - 1]) &&
                           huge->seams[i] < huge->start + huge->usable_bytes,
                       "seams lie within the mapping, ascending", huge->seams[i], i);
        }
        check_equal(check, "the state is that of its list", huge->state, state);
        check_equal(check, "its number leads to it", (uintptr_t)huge_numbered(huge->number),
                    (uintptr_t)huge);
        if (state != HUGE_UNUSED) {
            *bytes += huge->mapped_bytes;
            check_that(check, huge->usable_bytes <= huge->mapped_bytes,
                       "usable_bytes <= mapped_bytes", huge->usable_bytes, huge->mapped_bytes);
        }
        if (state == HUGE_LIVE) {
            check_entry(check, huge, huge->start);
            check_entry(check, huge, huge->start + huge->usable_bytes - 1);
        } else if (state == HUGE_KEPT) {
            // One that begins amid a page of ours may share it with a block that ends there.
            const uint64_t entry = page_map_get(huge->start);
            check_that(check, entry != page_entry(huge->number, PAGE_KIND_HUGE),
                       "a kept mapping has no entry", entry, huge->number);
        }
    }
    return count;
}

size_t huge_check(void) {
    struct check check = {"huge blocks", 0, 0};
    uint64_t live_bytes = 0;
    uint64_t kept_bytes = 0;
    uint64_t seams = 0;
    lock_acquire(&table.lock);
    huge_table_prepare();
    const uint64_t live = check_list(&check, &table.live, HUGE_LIVE, &live_bytes, &seams);
    const uint64_t kept = check_list(&check, &table.kept, HUGE_KEPT, &kept_bytes, &seams);
    uint64_t leaving_bytes = 0;
    const uint64_t leaving =
        check_list(&check, &table.leaving, HUGE_LEAVING, &leaving_bytes, &seams);
    const uint64_t unused = check_list(&check, &table.unused, HUGE_UNUSED, NULL, &seams);
    check.structure = "huge blocks";
    check.where = 0;
    check_equal(&check, "seam_count == seams of all mappings", table.seam_count, seams);
    check_equal(&check, "live_count == blocks on the live list", table.live_count, live);
    check_equal(&check, "live_bytes == bytes on the live list", table.live_bytes, live_bytes);
    check_that(&check, table.peak_bytes >= table.live_bytes, "peak_bytes >= live_bytes",
               table.peak_bytes, table.live_bytes);
    check_equal(&check, "kept_count == mappings on the kept list", table.kept_count, kept);
    check_equal(&check, "kept_bytes == bytes on the kept list",
                atomic_load_relaxed(&table.kept_bytes), kept_bytes);
    check_that(&check, huge_refused_bytes <= kept_bytes, "refused_bytes <= kept_bytes",
               huge_refused_bytes, kept_bytes);
    check_equal(&check, "each descriptor is on one list", live + kept + leaving + unused,
                table.chunk_count * (uint64_t)HUGE_CHUNK_COUNT);
    lock_release(&table.lock);
    return check.violations;
}

void huge_fork_lock(void) {
    lock_acquire(&table.lock);
    huge_table_prepare();
    leaving_await_all();
}

void huge_fork_child(void) {
    // Threads that the child has not.
    table.waiting_count = table.forking_count = 0;
}

void huge_fork_unlock(void) {
    lock_release(&table.lock);
}
