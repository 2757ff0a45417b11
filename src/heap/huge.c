#include "heap/huge.h"

#include "base/atomic.h"
#include "base/bits.h"
#include "base/check.h"
#include "config/counters.h"
#include "config/options.h"
#include "heap/large.h"
#include "os/events.h"
#include "os/lock.h"
#include "os/os.h"
#include "space/arena.h"
#include "space/metadata.h"
#include "space/page_map.h"

static struct huge_table table = {.lock = LOCK_INITIAL(LOCK_RANK_HUGE)};
INSPECTABLE(table, huge_table_state);
_Atomic(struct huge *) huge_chunks[HUGE_CHUNKS_MAX];  // release and acquire: see huge.h

static struct huge *huge_numbered(uint32_t number) {
    if (number / HUGE_CHUNK_COUNT >= HUGE_CHUNKS_MAX) {
        return NULL;
    }
    struct huge *chunk = atomic_load_acquire(&huge_chunks[number / HUGE_CHUNK_COUNT]);
    return chunk == NULL ? NULL : &chunk[number % HUGE_CHUNK_COUNT];
}

static void prepare_lists(void) {
    if (unlikely(!table.ready)) {
        list_init(&table.live);
        list_init(&table.kept);
        list_init(&table.unused);
        table.ready = true;
    }
}

static bool add_descriptors(void) {
    if (table.chunk_count == HUGE_CHUNKS_MAX) {
        return false;
    }
    struct huge *chunk = metadata_alloc(HUGE_CHUNK_COUNT * sizeof *chunk);
    if (chunk == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < HUGE_CHUNK_COUNT; i++) {
        chunk[i].number = table.chunk_count * HUGE_CHUNK_COUNT + i;
        list_push_back(&table.unused, &chunk[i].link);
    }
    atomic_store_release(&huge_chunks[table.chunk_count], chunk);
    table.chunk_count++;
    return true;
}

static struct huge *first_of(struct list *list) {
    return list_is_empty(list) ? NULL : CONTAINER_OF(list->next, struct huge, link);
}

static void move_to(struct list *list, struct huge *huge, enum huge_state state) {
    list_remove(&huge->link);
    list_push_front(list, &huge->link);
    huge->state = (uint8_t)state;
}

static void add_kept(int64_t bytes) {
    atomic_bump_owned(&table.kept_bytes, (uint64_t)bytes);
}

static void make_live(struct huge *huge) {
    move_to(&table.live, huge, HUGE_LIVE);
    table.live_bytes += huge->mapped_bytes;
    table.live_count++;
    table.peak_bytes = greatest_u64(table.peak_bytes, table.live_bytes);
    page_map_set(huge->start, align_up(huge->usable_bytes, PAGE_BYTES) >> PAGE_SHIFT,
                 page_entry(huge->number, PAGE_KIND_HUGE));
}

// From live to kept; the entries are gone.
static void retire(struct huge *huge) {
    table.live_bytes -= huge->mapped_bytes;
    table.live_count--;
    add_kept((int64_t)huge->mapped_bytes);
    move_to(&table.kept, huge, HUGE_KEPT);
}

// Unmaps one kept mapping. One that the system refuses to unmap stays kept.
static bool drop_kept(struct huge *huge) {
    if (!os_unmap((void *)huge->start, huge->mapped_bytes)) {
        return false;
    }
    event_record(EVENT_huge_unmapped, huge->start, huge->mapped_bytes);
    add_kept(-(int64_t)huge->mapped_bytes);
    list_remove(&huge->link);
    list_push_back(&table.unused, &huge->link);
    huge->state = HUGE_UNUSED;
    return true;
}

// The smallest kept mapping that serves the request and wastes at most a quarter.
static struct huge *find_kept(size_t mapped_bytes, size_t alignment) {
    struct huge *best = NULL;
    for (struct list *link = table.kept.next; link != &table.kept; link = link->next) {
        struct huge *huge = CONTAINER_OF(link, struct huge, link);
        if (huge->mapped_bytes >= mapped_bytes &&
            huge->mapped_bytes - mapped_bytes <= mapped_bytes / 4 &&
            (huge->start & (alignment - 1)) == 0 &&
            (best == NULL || huge->mapped_bytes < best->mapped_bytes)) {
            best = huge;
        }
    }
    return best;
}

// A new mapping is about to come: kept ones go as far as needed for live and kept together to stay
// below the highest live total there was, the oldest first.
static void make_room(size_t mapped_bytes) {
    const uint64_t wanted = table.live_bytes + mapped_bytes;
    const uint64_t allowed = wanted < table.peak_bytes ? table.peak_bytes - wanted : 0;
    while (atomic_load_relaxed(&table.kept_bytes) > allowed) {
        struct list *oldest = table.kept.previous;
        if (oldest == &table.kept || !drop_kept(CONTAINER_OF(oldest, struct huge, link))) {
            break;
        }
    }
}

static size_t guard_bytes(void) {
    return options.guard_gaps ? PAGE_BYTES : 0;
}

static bool map_new(struct huge *huge, size_t usable_bytes, size_t alignment) {
    const size_t guard = guard_bytes();
    char *start = os_map(usable_bytes + guard, alignment);
    if (start == NULL) {
        return false;
    }
    if (!page_map_cover((uintptr_t)start, usable_bytes)) {
        os_unmap(start, usable_bytes + guard);
        return false;
    }
    os_advise_huge_pages(start, usable_bytes, arena_huge_page_wish(false));
    if (guard != 0) {
        os_guard(start + usable_bytes, guard);
    }
    huge->start = (uintptr_t)start;
    huge->usable_bytes = usable_bytes;
    huge->mapped_bytes = usable_bytes + guard;
    return true;
}

// The lock is held.
static struct huge *take_kept(size_t usable_bytes, size_t alignment) {
    struct huge *huge = find_kept(usable_bytes + guard_bytes(), alignment);
    if (huge != NULL) {
        add_kept(-(int64_t)huge->mapped_bytes);
        make_live(huge);
        count_event(COUNTER_huge_reuses, 1);
    }
    return huge;
}

// The mapping of `huge` now has `usable_bytes`, its start may have changed. The lock is held; the old
// entries are gone.
static void settle(struct huge *huge, size_t usable_bytes) {
    huge->usable_bytes = usable_bytes;
    huge->mapped_bytes = usable_bytes;
    table.live_count--;  // make_live counts it again
    make_live(huge);
}

static bool grow_in_place(struct huge *huge, size_t usable_bytes) {
    if (!page_map_cover(huge->start, usable_bytes) ||
        !os_resize((void *)huge->start, huge->usable_bytes, usable_bytes)) {
        return false;
    }
    table.live_bytes -= huge->mapped_bytes;
    settle(huge, usable_bytes);
    return true;
}

static bool grow_by_moving(struct huge *huge, size_t usable_bytes) {
    const size_t before = huge->usable_bytes;
    char *destination = os_reserve_aligned(usable_bytes, PAGE_BYTES);
    if (destination == NULL) {
        return false;
    }
    // The old entries go first: once the pages have moved, the old addresses may be anybody's.
    const size_t pages = align_up(before, PAGE_BYTES) >> PAGE_SHIFT;
    page_map_set(huge->start, pages, PAGE_ENTRY_NONE);
    if (!page_map_cover((uintptr_t)destination, usable_bytes) ||
        !os_move((void *)huge->start, before, destination, usable_bytes)) {
        os_unmap(destination, usable_bytes);
        page_map_set(huge->start, pages, page_entry(huge->number, PAGE_KIND_HUGE));
        return false;
    }
    huge->start = (uintptr_t)destination;
    table.live_bytes -= huge->mapped_bytes;
    settle(huge, usable_bytes);
    count_event(COUNTER_huge_moves, 1);
    return true;
}

static bool shrink(struct huge *huge, size_t usable_bytes) {
    const size_t before = huge->usable_bytes;
    const size_t kept_pages = align_up(usable_bytes, PAGE_BYTES) >> PAGE_SHIFT;
    const size_t pages = align_up(before, PAGE_BYTES) >> PAGE_SHIFT;
    const uintptr_t tail = huge->start + kept_pages * PAGE_BYTES;
    // The entries go first: once the tail is unmapped, its addresses may be anybody's.
    page_map_set(tail, pages - kept_pages, PAGE_ENTRY_NONE);
    if (!os_resize((void *)huge->start, before, usable_bytes)) {
        // The longer block still serves.
        page_map_set(tail, pages - kept_pages, page_entry(huge->number, PAGE_KIND_HUGE));
        return true;
    }
    table.live_bytes -= huge->mapped_bytes;
    settle(huge, usable_bytes);
    return true;
}

static bool set_length(struct huge *huge, size_t usable_bytes) {
    if (usable_bytes <= huge->usable_bytes) {
        return usable_bytes == huge->usable_bytes || shrink(huge, usable_bytes);
    }
    make_room(usable_bytes - huge->usable_bytes);
    return grow_in_place(huge, usable_bytes) || grow_by_moving(huge, usable_bytes);
}

// The kept mapping nearest in length, of those that have at least a quarter of it; NULL when none has.
static struct huge *find_nearest_kept(size_t usable_bytes) {
    struct huge *nearest = NULL;
    size_t least = SIZE_MAX;
    for (struct list *link = table.kept.next; link != &table.kept; link = link->next) {
        struct huge *huge = CONTAINER_OF(link, struct huge, link);
        const size_t apart = huge->usable_bytes > usable_bytes ? huge->usable_bytes - usable_bytes
                                                               : usable_bytes - huge->usable_bytes;
        if (huge->usable_bytes >= usable_bytes / 4 && apart < least) {
            nearest = huge;
            least = apart;
        }
    }
    return nearest;
}

// A kept mapping made longer or shorter: only what it lacks comes as new pages. The lock is held.
static struct huge *take_resized(size_t usable_bytes, size_t alignment) {
    struct huge *huge =
        alignment > PAGE_BYTES || guard_bytes() != 0 ? NULL : find_nearest_kept(usable_bytes);
    if (huge == NULL) {
        return NULL;
    }
    const uint64_t peak_bytes = table.peak_bytes;
    add_kept(-(int64_t)huge->mapped_bytes);
    make_live(huge);
    const bool done = set_length(huge, usable_bytes);
    // What it was in between was nobody's.
    table.peak_bytes = greatest_u64(peak_bytes, table.live_bytes);
    if (!done) {
        page_map_set(huge->start, align_up(huge->usable_bytes, PAGE_BYTES) >> PAGE_SHIFT,
                     PAGE_ENTRY_NONE);
        retire(huge);
        return NULL;
    }
    count_event(COUNTER_huge_reuses, 1);
    return huge;
}

// The lock is held.
static struct huge *take_new(size_t usable_bytes, size_t alignment) {
    make_room(usable_bytes + guard_bytes());
    if (list_is_empty(&table.unused) && !add_descriptors()) {
        return NULL;
    }
    struct huge *huge = first_of(&table.unused);
    if (!map_new(huge, usable_bytes, alignment)) {
        return NULL;
    }
    make_live(huge);
    return huge;
}

void *huge_alloc(size_t bytes, size_t alignment, bool zero) {
    const size_t page_bytes = os_page_bytes();
    if (bytes > ((size_t)1 << (ADDRESS_BITS - 1)) ||
        alignment > ((size_t)1 << (ADDRESS_BITS - 1))) {
        return NULL;
    }
    if (alignment < PAGE_BYTES) {
        alignment = PAGE_BYTES;
    }
    const size_t usable_bytes = align_up(bytes, page_bytes);
    lock_acquire(&table.lock);
    prepare_lists();
    struct huge *huge = take_kept(usable_bytes, alignment);
    if (huge == NULL && !zero) {
        huge = take_resized(usable_bytes, alignment);
    }
    const bool reused = huge != NULL;
    if (!reused) {
        huge = take_new(usable_bytes, alignment);
    }
    lock_release(&table.lock);
    if (huge == NULL) {
        return NULL;
    }
    count_event(COUNTER_huge_allocs, 1);
    event_record(EVENT_huge_alloc, huge->start, huge->usable_bytes);
    void *start = (void *)huge->start;
    // Giving the old pages back is cheaper than clearing them, and leaves untouched what stays so.
    if (zero && reused && !os_purge(start, huge->usable_bytes)) {
        __builtin_memset(start, 0, bytes);
    }
    return start;
}

struct huge *huge_find(uintptr_t address) {
    const uint32_t entry = page_map_get(address);
    if (page_entry_kind(entry) != PAGE_KIND_HUGE) {
        return NULL;
    }
    return huge_numbered(page_entry_number(entry));
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
    if (!page_map_claim(address, page_entry(huge->number, PAGE_KIND_HUGE))) {
        return false;
    }
    page_map_set(huge->start, align_up(huge->usable_bytes, PAGE_BYTES) >> PAGE_SHIFT,
                 PAGE_ENTRY_NONE);
    count_event(COUNTER_huge_frees, 1);
    event_record(EVENT_huge_free, huge->start, huge->usable_bytes);
    const uint64_t now_ms = os_clock_ms();
    // Cleared memory is what the hardened mode promises of anything freed.
    const bool cleared = !options.zero_on_free || os_purge((void *)huge->start, huge->usable_bytes);
    lock_acquire(&table.lock);
    huge->freed_ms = now_ms;
    retire(huge);
    if (!cleared || option_live(purge_delay_ms) == 0 ||
        atomic_load_relaxed(&table.kept_bytes) > option_live(huge_cache_bytes)) {
        drop_kept(huge);
    }
    lock_release(&table.lock);
    return true;
}

bool huge_resize(struct huge *huge, size_t bytes) {
    if (bytes > ((size_t)1 << (ADDRESS_BITS - 1))) {
        return false;
    }
    size_t usable_bytes = align_up(bytes, os_page_bytes());
    if (usable_bytes == huge->usable_bytes) {
        return true;
    }
    if (huge->mapped_bytes != huge->usable_bytes) {
        return false;  // a guard lies behind it: the caller copies
    }
    lock_acquire(&table.lock);
    const bool done = set_length(huge, usable_bytes);
    lock_release(&table.lock);
    return done;
}

size_t huge_purge(uint64_t now_ms, bool everything) {
    size_t bytes = 0;
    lock_acquire(&table.lock);
    prepare_lists();
    struct list *link = table.kept.previous;
    while (link != &table.kept) {
        struct huge *huge = CONTAINER_OF(link, struct huge, link);
        link = link->previous;
        // Another thread's clock may be ahead of what this one read.
        if (everything || now_ms >= huge->freed_ms + option_live(purge_delay_ms)) {
            const size_t mapped_bytes = huge->mapped_bytes;
            bytes += drop_kept(huge) ? mapped_bytes : 0;
        }
    }
    lock_release(&table.lock);
    return bytes;
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

// The entry of a block's page: its own, or none while the block is being freed.
static void check_entry(struct check *check, const struct huge *huge, uintptr_t address) {
    const uint32_t entry = page_map_get(address);
    check_that(check, entry == page_entry(huge->number, PAGE_KIND_HUGE) || entry == PAGE_ENTRY_NONE,
               "a live block's pages carry its number", entry, huge->number);
}

// The descriptors of a list; their mapped bytes are added up.
static uint64_t check_list(struct check *check, const struct list *head, enum huge_state state,
                           uint64_t *bytes) {
    uint64_t count = 0;
    for (const struct list *link = head->next; link != head; link = link->next) {
        const struct huge *huge = CONTAINER_OF(link, struct huge, link);
        count++;
        check->structure = "huge block";
        check->where = huge->number;
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
            check_equal(check, "a kept mapping has no entry", page_map_get(huge->start),
                        PAGE_ENTRY_NONE);
        }
    }
    return count;
}

size_t huge_check(void) {
    struct check check = {"huge blocks", 0, 0};
    uint64_t live_bytes = 0;
    uint64_t kept_bytes = 0;
    lock_acquire(&table.lock);
    prepare_lists();
    const uint64_t live = check_list(&check, &table.live, HUGE_LIVE, &live_bytes);
    const uint64_t kept = check_list(&check, &table.kept, HUGE_KEPT, &kept_bytes);
    const uint64_t unused = check_list(&check, &table.unused, HUGE_UNUSED, NULL);
    check.structure = "huge blocks";
    check.where = 0;
    check_equal(&check, "live_count == blocks on the live list", table.live_count, live);
    check_equal(&check, "live_bytes == bytes on the live list", table.live_bytes, live_bytes);
    check_that(&check, table.peak_bytes >= table.live_bytes, "peak_bytes >= live_bytes",
               table.peak_bytes, table.live_bytes);
    check_equal(&check, "kept_bytes == bytes on the kept list",
                atomic_load_relaxed(&table.kept_bytes), kept_bytes);
    check_equal(&check, "each descriptor is on one list", live + kept + unused,
                table.chunk_count * (uint64_t)HUGE_CHUNK_COUNT);
    lock_release(&table.lock);
    return check.violations;
}

void huge_fork_lock(void) {
    lock_acquire(&table.lock);
}

void huge_fork_unlock(void) {
    lock_release(&table.lock);
}
