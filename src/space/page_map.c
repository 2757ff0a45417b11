#include "space/page_map.h"

#include "base/bits.h"
#include "os/lock.h"
#include "os/os.h"
#include "space/metadata.h"

#define WINDOW_BYTES (WINDOW_PAGES * sizeof(uint64_t))

page_entry_atomic *page_map_flat;
_Atomic(struct window *) page_map_windows[WINDOW_COUNT];  // release and acquire: see page_map.h
static struct lock page_map_lock = LOCK_INITIAL(LOCK_RANK_PAGE_MAP);

void page_map_init(void) {
    page_map_flat = os_reserve(PAGE_MAP_BYTES);
}

// Windows without a place, for page_map_cover_held(): enough for blocks of up to 126 GiB. Without the flat map, where each takes a chunk of
// metadata, 256 KiB of addresses, a limit of these allows less.
#define HELD_MAX 128
static struct window *held_windows[HELD_MAX];
static size_t held_count;

static struct window *new_window(void) {
    struct window *window = metadata_alloc(sizeof *window);
    if (window != NULL && page_map_flat == NULL) {
        window->entries = metadata_alloc(WINDOW_BYTES);
        if (window->entries == NULL) {
            metadata_free(window, sizeof *window);
            return NULL;
        }
    }
    return window;
}

static bool open_window(size_t index, struct window *window) {
    if (window == NULL) {
        return false;
    }
    if (page_map_flat != NULL) {
        window->entries = page_map_flat + index * WINDOW_PAGES;
        if (!os_commit(window->entries, WINDOW_BYTES)) {
            metadata_free(window, sizeof *window);
            return false;
        }
    }
    atomic_store_release(&page_map_windows[index], window);
    return true;
}

bool page_map_cover(uintptr_t start, size_t bytes) {
    const size_t first = start >> WINDOW_SHIFT;
    const size_t last = (start + bytes - 1) >> WINDOW_SHIFT;
    bool covered = last < WINDOW_COUNT;
    for (size_t i = first; covered && i <= last; i++) {
        if (unlikely(atomic_load_acquire(&page_map_windows[i]) == NULL)) {
            lock_acquire(&page_map_lock);
            covered =
                atomic_load_acquire(&page_map_windows[i]) != NULL || open_window(i, new_window());
            lock_release(&page_map_lock);
        }
    }
    return covered;
}

bool page_map_hold(size_t bytes) {
    const size_t wanted = bytes / ((size_t)1 << WINDOW_SHIFT) + 2;
    lock_acquire(&page_map_lock);
    while (wanted <= HELD_MAX && held_count < wanted) {
        struct window *window = new_window();
        if (window == NULL) {
            break;
        }
        held_windows[held_count++] = window;
    }
    const bool holds = held_count >= wanted;
    lock_release(&page_map_lock);
    return holds;
}

bool page_map_cover_held(uintptr_t start, size_t bytes) {
    bool covered = true;
    lock_acquire(&page_map_lock);
    for (size_t i = start >> WINDOW_SHIFT; i <= (start + bytes - 1) >> WINDOW_SHIFT; i++) {
        if (atomic_load_acquire(&page_map_windows[i]) == NULL) {
            covered = open_window(i, held_windows[--held_count]) && covered;
        }
    }
    lock_release(&page_map_lock);
    return covered;
}

void page_map_set(uintptr_t start, size_t page_count, uint64_t entry) {
    size_t page = start >> PAGE_SHIFT;
    for (size_t i = 0; i < page_count; i++, page++) {
        struct window *window = atomic_load_acquire(&page_map_windows[page / WINDOW_PAGES]);
        atomic_store_release(&window->entries[page % WINDOW_PAGES], entry);
    }
}

// Below that a system call, and the faults that bring the pages again, cost more than the memory is worth.
#define PURGED_PAGES_MIN 2

// The part that lies in whole pages of the machine goes back and reads as zero from then on, which is no entry. The system puts the zero
// page, or nothing, where the page was: a reader sees one or the other, and each who writes a later entry there comes behind
// this call, as behind a store.
SLOW_PATH void page_map_clear_long(uintptr_t start, size_t page_count) {
    const size_t per_page = os_page_bytes() / sizeof *page_map_flat;
    const size_t first = start >> PAGE_SHIFT;
    const size_t end = first + page_count;
    const size_t whole_first = align_up(first, per_page);
    const size_t whole_end = align_down(end, per_page);
    if (page_map_flat == NULL || whole_end < whole_first + PURGED_PAGES_MIN * per_page ||
        !os_purge(page_map_flat + whole_first, (whole_end - whole_first) * sizeof *page_map_flat)) {
        page_map_set(start, page_count, PAGE_ENTRY_NONE);
        return;
    }
    page_map_set(start, whole_first - first, PAGE_ENTRY_NONE);
    page_map_set(whole_end << PAGE_SHIFT, end - whole_end, PAGE_ENTRY_NONE);
}

static page_entry_atomic *entry_of(uintptr_t address, struct window *window) {
    return &window->entries[(address >> PAGE_SHIFT) % WINDOW_PAGES];
}

// Of no kind, and the calling thread's alone: a claim that stands is told from that of another thread, and from a page that has
// none because what it was within has ended.
static uint64_t claim_entry(void) {
    return page_entry(os_thread_pointer(), PAGE_KIND_NONE);
}

bool page_map_claim(uintptr_t address, uint64_t expected) {
    return atomic_cas_acquire(entry_of(address, page_map_window(address)), &expected,
                              claim_entry());
}

bool page_map_claim_stands(uintptr_t address) {
    return page_map_get(address) == claim_entry();
}

void page_map_unclaim(uintptr_t address, uint64_t entry) {
    uint64_t claim = claim_entry();
    atomic_cas_acquire(entry_of(address, page_map_window(address)), &claim, entry);
}

uint64_t page_map_get_unflat(uintptr_t address) {
    struct window *window = page_map_window(address);
    return window == NULL ? PAGE_ENTRY_NONE : atomic_load_relaxed(entry_of(address, window));
}

void page_map_set_superslab(uintptr_t address, struct superslab *superslab) {
    struct window *window = page_map_window(address);
    atomic_store_release(&window->superslabs[(address >> SUPERSLAB_SHIFT) % WINDOW_SUPERSLABS],
                         superslab);
}

void page_map_fork_lock(void) {
    lock_acquire(&page_map_lock);
}

void page_map_fork_unlock(void) {
    lock_release(&page_map_lock);
}
