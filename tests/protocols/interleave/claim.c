// large_free() of one block by two threads, while a third one takes the descriptor, or the page, for a block that covers the
// old address, frees it, and has one begin there again: each block is freed once, and no entry stays behind. The arena is
// this program's, its release of `start` included, and one thread does all the reusing; what grows or shrinks in place is not in it.
#include "heap/large.h"
#include "main.h"
#include "space/arena.h"
#include "space/page_map.h"
#include "stubs.h"

#define NEW (SUPERSLAB_BYTES * 5)
#define OLD (NEW + PAGE_BYTES)

// The old block's, and one that is at the new address from the start.
static struct run runs[2];
// The first one is nobody's. Release when it is given back, acquire when it is taken, as by the arena's lock.
static _Atomic(uint32_t) given;
// What arena_take() hands out.
static struct run *next_run;
static uintptr_t next_start;
static bool freed[3];

// ---- The arena, as far as who frees sees it

struct run *arena_take(unsigned page_count, size_t alignment, bool guard, uint64_t *used) {
    (void)alignment;
    (void)guard;
    whole_store_release(&next_run->start, next_start);
    next_run->page_count = (uint8_t)page_count;
    *used = 0;
    return next_run;
}

void arena_give(struct run *run) {
    atomic_store_relaxed(&run->kind, RUN_FREE);
    if (run == &runs[0]) {
        const bool was_given = atomic_exchange_acq_rel(&given, 1) != 0;
        EXPECT(!was_given);
    }
}

// Who comes late may still have found the old block's.
struct run *arena_find(uintptr_t address) {
    EXPECT(address == OLD);
    return &runs[0];
}

bool arena_extend(struct run *run, unsigned page_count) {
    (void)run;
    (void)page_count;
    return false;
}

void arena_shorten(struct run *run, unsigned page_count) {
    (void)run;
    (void)page_count;
}

// ---- The threads

static void free_old(unsigned number) {
    struct run *run = large_find(OLD);
    freed[number] = run != NULL && large_free(run, OLD);
}

static void free_first(void) {
    free_old(0);
}

static void free_second(void) {
    free_old(1);
}

static void take(struct run *run, uintptr_t start, unsigned page_count) {
    next_run = run;
    next_start = start;
    EXPECT(large_alloc(page_count * PAGE_BYTES, PAGE_BYTES, false) == (void *)start);
}

static void take_given(void) {
    EXPECT(atomic_exchange_acquire(&given, 0) == 1);
}

static void reuse(void) {
    explorer_wait(&given, sizeof given, 1);
    take_given();
    struct run *const cover = &runs[explorer_choose(2)];
    take(cover, NEW, 2);
    EXPECT(large_free(cover, NEW));
    if (cover == &runs[0]) {
        take_given();
    }
    take(&runs[0], OLD, 1);
    freed[2] = large_free(&runs[0], OLD);
}

static page_entry_atomic *entry_at(uintptr_t address) {
    return &page_map_window(address)->entries[(address >> PAGE_SHIFT) % WINDOW_PAGES];
}

static void begin(void) {
    stubs_begin();
    page_map_windows[NEW >> WINDOW_SHIFT] = NULL;
    EXPECT(page_map_cover(NEW, 2 * PAGE_BYTES));
    page_map_set(NEW, 2, PAGE_ENTRY_NONE);
    memset(runs, 0, sizeof runs);
    memset(freed, 0, sizeof freed);
    given = 0;
    take(&runs[0], OLD, 1);
    explorer_memory(runs, sizeof runs);
    explorer_memory(freed, sizeof freed);
    explorer_share(entry_at(OLD), sizeof *entry_at(OLD));
    for (unsigned i = 0; i < ARRAY_COUNT(runs); i++) {
        explorer_share(&runs[i].start, sizeof runs[i].start);
        explorer_share(&runs[i].kind, sizeof runs[i].kind);
    }
    explorer_share(&given, sizeof given);
}

static void end(void) {
    EXPECT(freed[0] + freed[1] + freed[2] == 2);
    EXPECT(given == 1);
    EXPECT(page_map_get(OLD) == PAGE_ENTRY_NONE && page_map_get(NEW) == PAGE_ENTRY_NONE);
}

const struct program explored = {
    .name = "claim",
    .thread_count = 3,
    .threads = {free_first, free_second, reuse},
    .begin = begin,
    .end = end,
};

const struct weakening weakenings[] = {
    {"window->entries[", RELEASE},
    {"entry_of(address", ACQUIRE},
    {"next_run->start", RELEASE},
    {"&run->start", ACQUIRE},
    {"run->kind", RELEASE},
    {"run->kind", ACQUIRE},
    {NULL, 0},
};
