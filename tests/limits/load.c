#include "load.h"

enum { BLOCK_COUNT_MAX = 60000 };

struct block {
    unsigned char *start;
    uint32_t bytes;
};

static struct block blocks[BLOCK_COUNT_MAX];
static size_t block_count;
static size_t live_bytes;
static _Atomic unsigned int refusals;
static _Atomic unsigned int bursts;
static _Atomic bool refused_last;
static uint64_t seed = 11;

// Large blocks are written at both ends and once a page in between.
static void write_block(const struct block *block) {
    if (block->bytes <= 4096) {
        pattern_fill(block->start, block->bytes, block->bytes);
        return;
    }
    pattern_fill(block->start, 512, block->bytes);
    for (size_t at = 4096; at + 512 < block->bytes; at += 4096) {
        block->start[at] = (unsigned char)at;
    }
    pattern_fill(block->start + block->bytes - 512, 512, block->bytes);
}

static void verify_block(const struct block *block) {
    if (block->bytes <= 4096) {
        require(pattern_differs(block->start, block->bytes, block->bytes) == block->bytes);
        return;
    }
    require(pattern_differs(block->start, 512, block->bytes) == 512);
    require(pattern_differs(block->start + block->bytes - 512, 512, block->bytes) == 512);
}

bool load_refused(const void *block) {
    const bool refused = block == NULL;
    if (refused) {
        require_that(errno == ENOMEM, "NULL with errno %d", errno);
        refusals++;
        bursts += !refused_last;
    }
    refused_last = refused;
    return refused;
}

void load_free(void *block) {
    errno = 99;
    free(block);
    require_that(errno == 99, "free changed errno to %d", errno);
}

static void *take_any_way(size_t bytes) {
    void *block = NULL;
    errno = 0;
    switch (random_below(&seed, 6)) {
    case 0:
        block = calloc(1, bytes);
        require(block == NULL || all_zero(block, bytes < 4096 ? bytes : 4096));
        break;
    case 1:
        block = memalign((size_t)16 << random_below(&seed, 10), bytes);
        break;
    case 2:
        block = realloc(NULL, bytes);
        break;
    default:
        block = malloc(bytes);
    }
    (void)load_refused(block);
    return block;
}

size_t load_grow(size_t goal_bytes, size_t size_max) {
    unsigned int before = refusals;
    while (live_bytes < goal_bytes && refusals == before) {
        require_that(block_count < BLOCK_COUNT_MAX, "the table of blocks is full");
        size_t bytes = random_log_size(&seed, size_max);
        if (bytes < 512) {
            // Few enough blocks for the table.
            bytes += 512;
        }
        void *block = take_any_way(bytes);
        if (block != NULL) {
            blocks[block_count] = (struct block){(unsigned char *)block, (uint32_t)bytes};
            write_block(&blocks[block_count]);
            block_count++;
            live_bytes += bytes;
        }
    }
    return live_bytes;
}

size_t load_live(void) {
    return live_bytes;
}

unsigned int load_refusals(void) {
    return refusals;
}

unsigned int load_bursts(void) {
    return bursts;
}

void load_shrink(size_t every) {
    size_t kept = 0;
    for (size_t i = 0; i < block_count; i++) {
        if (i % every == 0) {
            verify_block(&blocks[i]);
            live_bytes -= blocks[i].bytes;
            load_free(blocks[i].start);
        } else {
            blocks[kept++] = blocks[i];
        }
    }
    block_count = kept;
}

void load_every_entry_point(size_t bytes) {
    void *taken[9];
    memset(taken, 0, sizeof taken);
    errno = 0;
    (void)load_refused(taken[0] = malloc(bytes));
    errno = 0;
    (void)load_refused(taken[1] = calloc(1, bytes));
    errno = 0;
    (void)load_refused(taken[2] = realloc(NULL, bytes));
    errno = 0;
    (void)load_refused(taken[3] = reallocarray(NULL, 1, bytes));
    errno = 0;
    (void)load_refused(taken[4] = memalign(4096, bytes));
    errno = 0;
    (void)load_refused(taken[5] = aligned_alloc(64, bytes));
    errno = 0;
    (void)load_refused(taken[6] = valloc(bytes));
    errno = 0;
    (void)load_refused(taken[7] = pvalloc(bytes));
    void *untouched = (void *)&taken;
    taken[8] = untouched;
    int error = posix_memalign(&taken[8], 128, bytes);
    if (error != 0) {
        require(taken[8] == untouched);
        taken[8] = NULL;
        errno = error;
    }
    (void)load_refused(taken[8]);
    for (int i = 0; i < 9; i++) {
        if (taken[i] == NULL) {
            continue;
        }
        struct block block = {(unsigned char *)taken[i], (uint32_t)bytes};
        write_block(&block);
        errno = 0;
        void *resized = realloc(block.start, bytes * 3);
        (void)load_refused(resized);
        if (resized != NULL) {
            require(pattern_differs(resized, bytes < 512 ? bytes : 512, bytes) ==
                    (bytes < 512 ? bytes : 512));
            load_free(resized);
        } else {
            verify_block(&block);
            load_free(block.start);
        }
    }
}

static void *complete_in_thread(void *argument) {
    size_t goal = (size_t)(uintptr_t)argument;
    uint64_t own_seed = goal;
    enum { KEPT_COUNT = 200 };
    void *kept[KEPT_COUNT] = {NULL};
    for (size_t total = 0; total < goal;) {
        size_t at = random_below(&own_seed, KEPT_COUNT);
        size_t bytes = random_log_size(&own_seed, 300000);
        free(kept[at]);
        kept[at] = malloc(bytes);
        require_that(kept[at] != NULL, "%zu bytes refused in a thread although no limit holds",
                     bytes);
        ((char *)kept[at])[0] = 1;
        ((char *)kept[at])[bytes - 1] = 1;
        total += bytes;
    }
    for (size_t at = 0; at < KEPT_COUNT; at++) {
        free(kept[at]);
    }
    return NULL;
}

void load_complete(size_t goal_bytes) {
    static const size_t maxima[] = {8000, 100000, 3000000, 20000000};
    load_shrink(1);
    for (size_t i = 0; i < sizeof maxima / sizeof maxima[0]; i++) {
        unsigned int before = refusals;
        // Small blocks would need a longer table for the whole goal.
        size_t goal = i == 0 && goal_bytes > 64 * MIB ? 64 * MIB : goal_bytes;
        load_grow(goal, maxima[i]);
        require_that(refusals == before, "a request was refused although no limit holds");
        load_shrink(3);
        load_grow(goal, maxima[i]);
        require_that(refusals == before, "a request was refused although no limit holds");
        load_shrink(1);
    }
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++) {
        start_thread(&threads[i], 128 * KIB, complete_in_thread,
                     (void *)(uintptr_t)(goal_bytes / 4 + i));
    }
    for (int i = 0; i < 4; i++) {
        require(pthread_join(threads[i], NULL) == 0);
    }
    behaviour_require_sound_heap();
}
