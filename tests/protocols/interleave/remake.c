// A slab that ends and a slab of another heap that begins in its descriptor, while a block of the first one
// is freed a second time: heap_publish() and heap_collect() against slab_destroy() and slab_create(), of
// whose steps slab_remake() is made as well. The
// announcement of the second free may come before the end, between the two slabs, or to the second one.
// The block of the second slab that is freed right comes back once, and who gets it next sees all that was
// written to it; no announcement is left behind.
#include "config/options.h"
#include "heap/heap.h"
#include "heap/misuse.h"
#include "heap/slab.h"
#include "main.h"
#include "space/arena_purge.h"
#include "stubs.h"

// RIGHT, the block of the second slab that is freed once, and TWICE are in one word.
enum { CLASS = SIZE_CLASS_4096, TWICE = 0, RIGHT = 1, LIVES = 2, START = SUPERSLAB_BYTES };
// Pieces of plain memory: the block, and what the locks of the heaps guard.
enum { BLOCK, FIRST_HEAP, SECOND_HEAP };

static struct run run;
static bool run_is_taken;
static unsigned lives;
static struct heap heaps[LIVES];
// Relaxed, acquire and release as written below: the program's own order between who takes a block and who
// frees it.
static _Atomic(uint32_t) handed_over;
static bool returned;

struct run *arena_take(unsigned page_count, size_t alignment, bool guard, uint64_t *used) {
    (void)alignment;
    (void)guard;
    EXPECT(!run_is_taken && lives < LIVES);
    run_is_taken = true;
    lives++;
    run.start = START;
    run.page_count = (uint8_t)page_count;
    *used = 0;
    return &run;
}

void arena_give(struct run *given) {
    EXPECT(given == &run && run_is_taken && lives == 1);
    run_is_taken = false;
}

void arena_trim(uint64_t least_bytes) {
    (void)least_bytes;
}

void arena_purge_small(uint64_t most_bytes) {
    (void)most_bytes;
}

uint64_t page_map_get_unflat(uintptr_t address) {
    (void)address;
    return page_entry_slab(&run, CLASS);
}

// The second free may be noticed, as either.
void misuse_report(enum misuse what, uintptr_t address) {
    (void)what;
    EXPECT(address == START);
}

void misuse_report_freed(enum misuse what, const struct run *slab, unsigned index) {
    (void)what;
    (void)slab;
    EXPECT(index == TWICE);
}

// ---- The threads

static void free_late(void) {
    heap_publish(&run, 0, bit(TWICE));
}

static void lock_heap(unsigned number) {
    lock_acquire(&heaps[number].lock);
    explorer_write(FIRST_HEAP + number);
}

// Frees the last block of the first slab, and takes all of the second.
static void remake(void) {
    void *block = (void *)(START + TWICE * (uintptr_t)size_classes[CLASS].block_bytes);
    lock_heap(0);
    heap_put(&heaps[0], &block, 1);
    lock_release(&heaps[0].lock);
    EXPECT(!run_is_taken);
    void *taken[64];
    const unsigned count = size_classes[CLASS].block_count;
    lock_heap(1);
    EXPECT(heap_take(&heaps[1], CLASS, count, taken) == count);
    lock_release(&heaps[1].lock);
    explorer_write(BLOCK);
    atomic_store_release(&handed_over, 1);
}

static void free_right(void) {
    explorer_wait(&handed_over, sizeof handed_over, 1);
    (void)atomic_exchange_acquire(&handed_over, 2);
    explorer_write(BLOCK);
    heap_publish(&run, 0, bit(RIGHT));
}

static void collect(void) {
    for (unsigned i = 0; i < LIVES; i++) {
        lock_heap(i);
        heap_collect(&heaps[i]);
        // What came back is used at once by somebody else.
        if (i == 1 && lives == LIVES && (run.one_word_free & bit(RIGHT)) != 0) {
            returned = true;
            explorer_write(BLOCK);
        }
        lock_release(&heaps[i].lock);
    }
}

static void begin(void) {
    stubs_begin();
    memset(&run, 0, sizeof run);
    memset(heaps, 0, sizeof heaps);
    run_is_taken = false;
    returned = false;
    lives = 0;
    handed_over = 0;
    options.retain_slabs = 0;
    options.excess_bytes = UINT64_MAX;
    for (unsigned i = 0; i < LIVES; i++) {
        heap_init(&heaps[i], i + 1);
    }
    void *taken[64];
    const unsigned count = size_classes[CLASS].block_count;
    EXPECT(heap_take(&heaps[0], CLASS, count, taken) == count);
    // All but the first one, which is the last in the list, came back.
    heap_put(&heaps[0], taken, count - 1);
    EXPECT(run.free_count == count - 1 && taken[count - 1] == (void *)START);
    explorer_memory(&run, sizeof run);
    explorer_memory(&run_is_taken, sizeof run_is_taken);
    explorer_memory(&lives, sizeof lives);
    explorer_memory(&returned, sizeof returned);
    for (unsigned i = 0; i < LIVES; i++) {
        explorer_memory(&heaps[i].bins[CLASS], sizeof heaps[i].bins[CLASS]);
        explorer_memory(&heaps[i].full, sizeof heaps[i].full);
        explorer_memory(&heaps[i].spares, sizeof heaps[i].spares);
        explorer_share(&heaps[i].lock.state, sizeof heaps[i].lock.state);
        explorer_share(&heaps[i].remote_slabs, sizeof heaps[i].remote_slabs);
    }
    explorer_share(&run.heap, sizeof run.heap);
    explorer_share(&run.one_word_remote, sizeof run.one_word_remote);
    explorer_share(&run.remote_summary, sizeof run.remote_summary);
    explorer_share(&run.remote_next, sizeof run.remote_next);
    explorer_share(&handed_over, sizeof handed_over);
}

static void end(void) {
    for (unsigned i = 0; i < LIVES; i++) {
        heap_collect(&heaps[i]);
    }
    EXPECT(slab_holds(&run, RIGHT));
    EXPECT(run.free_count == 1u + slab_holds(&run, TWICE));
    EXPECT(run.remote_summary == 0 && run.one_word_remote == 0);
    EXPECT(heaps[0].remote_slabs == NULL && heaps[1].remote_slabs == NULL);
    EXPECT(slab_check(&run) == 0);
}

const struct program explored = {
    .name = "remake",
    .thread_count = 4,
    .threads = {free_late, remake, free_right, collect},
    .begin = begin,
    .end = end,
};

const struct weakening weakenings[] = {
    {"remote_bits", RELEASE},
    {"remote_bits", ACQUIRE},
    {"remote_bits[w]", RELEASE},  // of slab_create() alone
    {"remote_summary", RELEASE},
    {"remote_summary", ACQUIRE},
    {NULL, 0},
};
