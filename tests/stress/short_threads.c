// Many short threads: each allocates, frees most of it, and leaves a block behind that main frees.
// The count is the first argument. Memory at the end is what it was after the first tenth.
#include "behaviour.h"

enum { AT_ONCE = 8, BLOCK_COUNT = 24 };

static void *live_shortly(void *argument) {
    uint64_t seed = (uint64_t)(uintptr_t)argument;
    void *blocks[BLOCK_COUNT];
    size_t sizes[BLOCK_COUNT];
    for (int i = 0; i < BLOCK_COUNT; i++) {
        sizes[i] = random_log_size(&seed, i == 0 ? 100000 : 3000);
        blocks[i] = i % 4 == 0 ? calloc(1, sizes[i]) : malloc(sizes[i]);
        require(blocks[i] != NULL);
        pattern_fill(blocks[i], sizes[i], sizes[i]);
    }
    for (int i = 1; i < BLOCK_COUNT; i++) {
        require(pattern_differs(blocks[i], sizes[i], sizes[i]) == sizes[i]);
        free(blocks[i]);
    }
    return blocks[0];
}

int main(int count, char **values) {
    behaviour_require_allocator();
    require_that(count == 2, "usage: short_threads COUNT");
    unsigned long threads_wanted = strtoul(values[1], NULL, 10);
    size_t early = 0;
    for (unsigned long started = 0; started < threads_wanted; started += AT_ONCE) {
        pthread_t threads[AT_ONCE];
        for (unsigned long i = 0; i < AT_ONCE; i++) {
            start_thread(&threads[i], 64 * KIB, live_shortly, (void *)(started + i + 1));
        }
        for (unsigned long i = 0; i < AT_ONCE; i++) {
            void *left = NULL;
            require(pthread_join(threads[i], &left) == 0);
            free(left);
        }
        if (early == 0 && started >= threads_wanted / 10) {
            early = rss_bytes();
        }
    }
    behaviour_require_sound_heap();
    size_t late = rss_bytes();
    behaviour_say("RSS after a tenth %zu KiB, at the end %zu KiB", early / KIB, late / KIB);
    require_that(late < early + 4 * MIB, "RSS grew by %zu KiB over the threads",
                 (late - early) / KIB);
    return 0;
}
