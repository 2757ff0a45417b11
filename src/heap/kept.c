#include "heap/kept.h"

#include "base/bits.h"
#include "heap/block_pages.h"
#include "heap/leaving.h"
#include "os/os.h"
#include "space/page_map.h"

// A kept mapping that is longer than wanted by less than this part is not cut: the piece would be of little use.
#define CUT_PART 16
// Moving pages costs as much as a few page faults.
#define MOVED_BYTES_MIN (256 * KIB)
// And a seam: where less than this is missing, as in a block that grows page by page, it comes from the system
// (docs/decisions/0038-thresholds-of-mremap.md).
#define FILLED_BYTES_MIN (64 * KIB)
// All of them are looked at for each block. Blocks of a page that are aligned to megabytes are huge ones as well. What the system
// refuses to unmap may come to more: the latest are looked at.
#define KEPT_MOST 1024
// Of so many that the system refuses to move the others are taken to be refused too: it may have no mapping left to divide another
// into, and each costs four calls and a look at all.
#define REFUSED_MOVES_MOST 4

// The end of a kept mapping is no longer its own.
static void shorten(struct huge *huge, size_t bytes) {
    huge_count_kept(huge, -(int64_t)bytes);
    if (bytes == huge->mapped_bytes) {
        huge_move_to(huge, HUGE_UNUSED);
        return;
    }
    whole_store(&huge->usable_bytes, huge->usable_bytes - bytes);
    huge->mapped_bytes -= bytes;
    huge_forget_seams(huge, huge->start + huge->usable_bytes);
}

// What lies behind `bytes`, a multiple of PAGE_BYTES, becomes a kept mapping of its own.
static bool cut(struct huge *huge, size_t bytes) {
    struct huge *rest = huge_guard_bytes(huge) != 0 ? NULL : huge_unused();
    if (rest == NULL) {
        return false;
    }
    block_pages_split(huge, huge->start + bytes);
    whole_store_release(&rest->start, huge->start + bytes);
    rest->mapped_bytes = huge->usable_bytes - bytes;
    whole_store(&rest->usable_bytes, rest->mapped_bytes);
    rest->freed_ms = huge->freed_ms;
    rest->immovable = huge->immovable;
    rest->asked = huge->asked;
    rest->refused = huge->refused;
    rest->may_have_huge_pages = huge->may_have_huge_pages;
    for (unsigned i = 0; i < huge->seam_count; i++) {
        if (huge->seams[i] > rest->start) {
            huge_add_seam(rest, huge->seams[i]);
        }
    }
    huge->mapped_bytes = bytes;
    whole_store(&huge->usable_bytes, bytes);
    huge_forget_seams(huge, rest->start);
    // As old as what it was cut from.
    list_remove(&rest->link);
    list_push_back(&huge->link, &rest->link);
    rest->state = HUGE_KEPT;
    huge_table_state.kept_count++;
    return true;
}

// The shortest kept mapping of at least `bytes` at a multiple of `alignment`; NULL when there is none.
static struct huge *find_shortest(size_t bytes, size_t alignment) {
    struct huge *best = NULL;
    const struct list *head = &huge_table_state.kept;
    unsigned looks = 0;
    for (struct list *link = head->next; link != head && looks < KEPT_MOST;
         link = link->next, looks++) {
        struct huge *huge = CONTAINER_OF(link, struct huge, link);
        if (huge->mapped_bytes >= bytes && (huge->start & (alignment - 1)) == 0 &&
            (best == NULL || huge->mapped_bytes < best->mapped_bytes)) {
            best = huge;
        }
    }
    return best;
}

struct huge *kept_take(size_t mapped_bytes, size_t alignment) {
    struct huge *huge = find_shortest(mapped_bytes, alignment);
    if (huge == NULL) {
        return NULL;
    }
    const size_t paged_bytes = align_up(mapped_bytes, PAGE_BYTES);
    const size_t surplus_bytes = huge->mapped_bytes - mapped_bytes;
    const bool is_cut = surplus_bytes > mapped_bytes / CUT_PART &&
                        paged_bytes < huge->mapped_bytes && cut(huge, paged_bytes);
    if (!is_cut && surplus_bytes > mapped_bytes / 4) {
        return NULL;
    }
    huge_count_kept(huge, -(int64_t)huge->mapped_bytes);
    return huge;
}

// Where the next `bytes` come from: the mapping that is only just long enough, else the longest.
static struct huge *find_source(size_t bytes) {
    struct huge *best = NULL;
    const struct list *head = &huge_table_state.kept;
    unsigned looks = 0;
    for (struct list *link = head->next; link != head && looks < KEPT_MOST;
         link = link->next, looks++) {
        struct huge *huge = CONTAINER_OF(link, struct huge, link);
        if (huge_guard_bytes(huge) != 0 || huge->immovable ||
            huge->usable_bytes < MOVED_BYTES_MIN) {
            continue;
        }
        const bool serves = huge->usable_bytes >= bytes;
        if (best == NULL ||
            (best->usable_bytes >= bytes ? serves && huge->usable_bytes < best->usable_bytes
                                         : huge->usable_bytes > best->usable_bytes)) {
            best = huge;
        }
    }
    return best;
}

// Moves the end of a kept mapping to `offset` of a block, no more than the block has from there on and no further than the
// mapping's last piece. Returns the bytes; 0 when the system refuses.
static size_t move_end(struct huge *source, struct huge *huge, size_t offset) {
    const uintptr_t destination = huge->start + offset;
    const size_t bytes = huge->usable_bytes - offset;
    const uintptr_t end = source->start + source->usable_bytes;
    const size_t moved_bytes = least_u64(bytes, end - huge_last_piece(source));
    if (moved_bytes != source->usable_bytes) {
        block_pages_split(source, end - moved_bytes);
    }
    if (os_move((void *)(end - moved_bytes), moved_bytes, (void *)destination, moved_bytes, true) !=
        OS_MOVED) {
        source->immovable = 1;  // it may still serve as a whole
        return 0;
    }
    block_pages_fill(huge, source, offset + moved_bytes);
    shorten(source, moved_bytes);
    return moved_bytes;
}

size_t kept_fill(struct huge *huge, size_t from_bytes) {
    size_t filled_bytes = from_bytes;
    unsigned refused = 0;
    if (huge->usable_bytes - from_bytes < FILLED_BYTES_MIN) {
        return 0;
    }
    while (filled_bytes < huge->usable_bytes && refused < REFUSED_MOVES_MOST) {
        const uintptr_t place = huge->start + filled_bytes;
        struct huge *source = find_source(huge->usable_bytes - filled_bytes);
        if (source == NULL || !huge_has_room_for_piece(huge)) {
            break;
        }
        const size_t moved_bytes = move_end(source, huge, filled_bytes);
        if (moved_bytes == 0) {
            refused++;
            continue;  // from another one
        }
        filled_bytes += moved_bytes;
        huge_add_seam(huge, place);
        if (filled_bytes < huge->usable_bytes) {
            huge_add_seam(huge, huge->start + filled_bytes);
        }
    }
    return filled_bytes - from_bytes;
}

// A kept mapping leaves, but for its first `kept_bytes`, where those can be cut off. Returns the bytes that leave.
static size_t drop(struct huge *huge, size_t kept_bytes) {
    struct huge *leaving = huge;
    if (kept_bytes != 0 && cut(huge, kept_bytes)) {
        leaving = CONTAINER_OF(huge->link.previous, struct huge, link);
    }
    huge_count_kept(leaving, -(int64_t)leaving->mapped_bytes);
    leaving_add(leaving);
    return leaving->mapped_bytes;
}

uint64_t kept_unrefused_bytes(void) {
    const uint64_t kept_bytes = atomic_load_relaxed(&huge_table_state.kept_bytes);
    return kept_bytes - huge_refused_bytes;
}

void kept_add(struct huge *huge, uint64_t now_ms) {
    huge_note_time(now_ms);
    huge->freed_ms = now_ms;
    huge->immovable = 0;
    huge_count_kept(huge, (int64_t)huge->mapped_bytes);
    huge_move_to(huge, HUGE_KEPT);
    if (unlikely(huge_table_state.kept_count > KEPT_MOST)) {
        struct huge *oldest = CONTAINER_OF(huge_table_state.kept.previous, struct huge, link);
        drop(oldest->refused ? huge : oldest, 0);
    }
}

uint64_t kept_trim(uint64_t bytes_max) {
    const struct list *head = &huge_table_state.kept;
    uint64_t dropped_bytes = 0;
    for (const struct list *link = head->previous;
         link != head && kept_unrefused_bytes() > bytes_max;) {
        struct huge *oldest = CONTAINER_OF(link, struct huge, link);
        link = link->previous;
        if (unlikely(oldest->refused)) {
            continue;
        }
        const uint64_t surplus_bytes =
            least_u64(kept_unrefused_bytes() - bytes_max, oldest->mapped_bytes);
        dropped_bytes += drop(oldest, align_down(oldest->mapped_bytes - surplus_bytes, PAGE_BYTES));
    }
    return dropped_bytes;
}

void kept_drop_aged(uint64_t now_ms, uint64_t age_ms) {
    const struct list *head = &huge_table_state.kept;
    while (!list_is_empty(head)) {
        struct huge *oldest = CONTAINER_OF(head->previous, struct huge, link);
        // Another thread's clock may be ahead of what this one read.
        if (age_ms != 0 && now_ms < oldest->freed_ms + age_ms &&
            !os_clock_went_back(oldest->freed_ms, now_ms)) {
            break;
        }
        drop(oldest, 0);
    }
}
