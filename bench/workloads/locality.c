/* locality: a buffer pool whose blocks are used more often than replaced, so that where an allocator
 * put them decides. A page of the pool is a header and rows of three sizes, taken together at four
 * call sites. Nine of ten accesses go to one page in ten; an access reads the header and walks the
 * rows, each step waiting for the one before, as through a list. Now and then a row is replaced, and
 * seldom a page is evicted and another loaded. (Grunwald, Zorn, Henderson, "Improving the cache
 * locality of memory allocation", PLDI 1993, look at programs in this way.) */
#include "frame.h"

enum { ROWS = 16, HEADER_BYTES = 96, HOT_ONE_IN = 10, HOT_PERCENT = 90 };
enum { UPDATE_ONE_IN = 8, EVICT_ONE_IN = 64 };

static const struct frame_workload locality = {
    .name = "locality",
    .unit = "pages of the pool read",
};

struct page {
    struct frame_slot header;
    struct frame_slot rows[ROWS];
};

struct pool {
    const struct frame_options *options;
    struct page *pages;
    struct frame_random random;
    uint64_t zero; /* 0, but only main knows: chains each row's address to the row before */
};

static void row_take(struct page *page, size_t row, uint64_t random) {
    switch (row % 3) {
    case 0:
        frame_take(&page->rows[row], 32, random);
        break;
    case 1:
        frame_take(&page->rows[row], 64, random);
        break;
    default:
        frame_take(&page->rows[row], 120, random);
    }
}

static void page_load(struct pool *pool, struct page *page) {
    frame_take(&page->header, HEADER_BYTES, frame_random_next(&pool->random));
    for (size_t row = 0; row < ROWS; row++) {
        row_take(page, row, frame_random_next(&pool->random));
    }
}

static uint64_t page_evict(const struct pool *pool, struct page *page) {
    const uint64_t checksum = frame_drop(&page->header, pool->options->check);
    return checksum + frame_drop_all(page->rows, ROWS, pool->options->check);
}

static uint64_t page_read(const struct pool *pool, const struct page *page) {
    const bool check = pool->options->check;
    frame_look(&page->header, check);
    uint64_t word, sum = 0;
    __builtin_memcpy(&word, page->header.block, sizeof word);
    for (size_t row = 0; row < ROWS; row++) {
        const struct frame_slot *slot = &page->rows[row + (word & pool->zero)];
        frame_look(slot, check);
        __builtin_memcpy(&word, slot->block, sizeof word);
        sum += (uint32_t)word;
    }
    return sum;
}

static uint64_t accesses_run(struct pool *pool, uint64_t accesses) {
    const size_t count = pool->options->slot_count;
    uint64_t checksum = 0;
    for (uint64_t i = 0; i < accesses; i++) {
        const uint64_t bits = frame_random_next(&pool->random);
        const uint64_t more = frame_random_mix(bits);
        const bool hot = frame_random_below(bits, 100) < HOT_PERCENT;
        /* Hot pages lie scattered among the others, as they were loaded. */
        const size_t index = hot ? frame_random_below(bits >> 32, count / HOT_ONE_IN) * HOT_ONE_IN
                                 : frame_random_below(bits >> 32, count);
        struct page *page = &pool->pages[index];
        checksum += page_read(pool, page);
        if (frame_random_below(more >> 32, UPDATE_ONE_IN) == 0) {
            const size_t row = frame_random_below(more >> 16, ROWS);
            checksum += frame_drop(&page->rows[row], pool->options->check);
            row_take(page, row, frame_random_mix(more));
        }
        if (frame_random_below(more >> 24, EVICT_ONE_IN) == 0) {
            checksum += page_evict(pool, page);
            page_load(pool, page);
        }
    }
    return checksum;
}

int main(int argc, char **argv) {
    struct frame_options options = {
        .workload = &locality,
        .seed = 53,
        .ops = 1000000,
        .warm_ops = 200000,
        .slot_count = 20000,
        .bytes_min = 32,
        .bytes_max = 120,
    };
    frame_options_parse(&options, argc, argv);
    if (options.slot_count < HOT_ONE_IN) {
        frame_fail("locality: at least 10 slots");
    }
    struct pool pool = {&options, frame_map(options.slot_count * sizeof *pool.pages),
                        frame_random_make(options.seed, 0), options.ops >> 63};
    for (size_t i = 0; i < options.slot_count; i++) {
        page_load(&pool, &pool.pages[i]);
    }
    uint64_t checksum = accesses_run(&pool, options.warm_ops);
    frame_start();
    checksum += accesses_run(&pool, options.ops);
    frame_stop();
    for (size_t i = 0; i < options.slot_count; i++) {
        checksum += page_evict(&pool, &pool.pages[i]);
    }
    frame_report(&options, options.ops, checksum);
    return 0;
}
