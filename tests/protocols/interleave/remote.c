// heap_publish() and heap_collect(): two threads free blocks of two slabs, one of them in the same word;
// the owner and a harvester collect. Every block comes back once, and who gets it next sees all that was
// written to it.
#include "config/options.h"
#include "heap/heap.h"
#include "heap/misuse.h"
#include "heap/slab.h"
#include "main.h"
#include "space/arena_purge.h"
#include "stubs.h"

enum { SLABS = 2, CLASS = SIZE_CLASS_4096, BLOCKS = 3, HEAP = BLOCKS };

static struct run runs[SLABS];
static unsigned runs_taken;
static struct heap heap;
// Blocks 0 and 1 are of the first slab, block 2 of the second.
static const struct { unsigned slab, index; } blocks[BLOCKS] = {{0, 0}, {0, 1}, {1, 0}};
static bool returned[BLOCKS];

// ---- What heap.c and slab.c call

struct run *arena_take(unsigned page_count, size_t alignment, bool guard, uint64_t *used) {
    struct run *run = &runs[runs_taken];
    (void)alignment;
    (void)guard;
    run->start = (1 + runs_taken++) * SUPERSLAB_BYTES;
    run->page_count = (uint8_t)page_count;
    *used = 0;
    return run;
}

void arena_give(struct run *run) {
    (void)run;
    explorer_fail("a slab ended that has blocks out");
}

void arena_trim(uint64_t least_bytes) {
    (void)least_bytes;
}

void arena_purge_small(uint64_t most_bytes) {
    (void)most_bytes;
}

uint64_t page_map_get_unflat(uintptr_t address) {
    const struct run *slab = &runs[address / SUPERSLAB_BYTES - 1];
    return page_entry_slab(slab, slab->class_index);
}

void misuse_report(enum misuse what, uintptr_t address) {
    (void)what;
    (void)address;
    explorer_fail("a right free was taken for an invalid one");
}

void misuse_report_freed(enum misuse what, const struct run *slab, unsigned index) {
    (void)what;
    (void)slab;
    (void)index;
    explorer_fail("a right free was taken for a double one");
}

// ---- The threads

static void free_block(unsigned block) {
    explorer_write(block);  // its last user
    heap_publish(&runs[blocks[block].slab], 0, bit(blocks[block].index));
}

static void free_one(void) {
    free_block(0);
}

static void free_two(void) {
    free_block(1);
    free_block(2);
}

// What came back is used at once by somebody else.
static void use_what_came_back(void) {
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (!returned[i] && (runs[blocks[i].slab].one_word_free & bit(blocks[i].index)) != 0) {
            returned[i] = true;
            explorer_write(i);
        }
    }
}

static void collect(void) {
    lock_acquire(&heap.lock);
    explorer_write(HEAP);
    heap_collect(&heap);
    use_what_came_back();
    lock_release(&heap.lock);
}

static void begin(void) {
    stubs_begin();
    memset(runs, 0, sizeof runs);
    memset(returned, 0, sizeof returned);
    runs_taken = 0;
    options.retain_slabs = SLABS;
    options.excess_bytes = UINT64_MAX;
    memset(&heap, 0, sizeof heap);
    heap_init(&heap, 1);
    void *taken[64];
    // All blocks of both slabs are out.
    for (unsigned i = 0; i < SLABS; i++) {
        const unsigned count = size_classes[CLASS].block_count;
        EXPECT(heap_take(&heap, CLASS, count, taken) == count);
    }
    EXPECT(runs_taken == SLABS && runs[0].free_count == 0 && runs[1].free_count == 0);
    explorer_memory(runs, sizeof runs);
    explorer_memory(&heap.bins[CLASS], sizeof heap.bins[CLASS]);
    explorer_memory(&heap.full, sizeof heap.full);
    explorer_memory(&heap.spares, sizeof heap.spares);
    explorer_memory(returned, sizeof returned);
    explorer_share(&heap.lock.state, sizeof heap.lock.state);
    explorer_share(&heap.remote_slabs, sizeof heap.remote_slabs);
    for (unsigned i = 0; i < SLABS; i++) {
        explorer_share(&runs[i].one_word_remote, sizeof runs[i].one_word_remote);
        explorer_share(&runs[i].remote_summary, sizeof runs[i].remote_summary);
        explorer_share(&runs[i].remote_next, sizeof runs[i].remote_next);
    }
}

static void end(void) {
    heap_collect(&heap);
    for (unsigned i = 0; i < BLOCKS; i++) {
        EXPECT(slab_holds(&runs[blocks[i].slab], blocks[i].index));
    }
    EXPECT(runs[0].free_count == 2 && runs[1].free_count == 1);
    EXPECT(runs[0].remote_summary == 0 && runs[1].remote_summary == 0);
    EXPECT(heap.remote_slabs == NULL);
    EXPECT(slab_check(&runs[0]) == 0 && slab_check(&runs[1]) == 0);
}

const struct program explored = {
    .name = "remote",
    .thread_count = 4,
    .threads = {free_one, free_two, collect, collect},
    .begin = begin,
    .end = end,
};

const struct weakening weakenings[] = {
    {"remote_bits", RELEASE},
    {"remote_bits", ACQUIRE},
    {"remote_slabs", RELEASE},
    {"remote_slabs", ACQUIRE},
    {"lock->state", RELEASE},
    {"lock->state", ACQUIRE},
    {NULL, 0},
};
