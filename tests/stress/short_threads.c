// Many short threads: each allocates, frees most of it, and leaves a block behind that main frees.
// The count is the first argument. Trimmed, memory at the end is what it was after the first tenth.
#include "behaviour.h"

enum { AT_ONCE = 8, BLOCK_COUNT = 24 };

static uint64_t base_seed;

static void *live_shortly(void *argument) {
    // Sixteen kinds of thread: what they need is reached early, and what grows later is lost.
    uint64_t seed = random_stream(base_seed, (uint64_t)(uintptr_t)argument % 16);
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
    base_seed = behaviour_seed();
    require_that(count == 2, "usage: short_threads COUNT");
    const size_t live_before = mallinfo2().uordblks;
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
            malloc_trim(0);
            early = rss_bytes();
        }
    }
    behaviour_require_sound_heap();
    // What is kept for the next thread is bounded; what is lost stays behind a trim.
    size_t kept = rss_bytes();
    malloc_trim(0);
    size_t late = rss_bytes();
    // Trimmed, blocks on their way to heaps that no thread uses are back; glibc counts one of its arenas only.
    const size_t live_after = mallinfo2().uordblks;
    require_that(!behaviour_on_hakmem() || live_after < live_before + 64 * KIB,
                 "%zu KiB are live, %zu KiB were before the threads", live_after / KIB,
                 live_before / KIB);
    behaviour_say("RSS trimmed after a tenth %zu KiB, at the end %zu KiB, trimmed %zu KiB",
                  early / KIB, kept / KIB, late / KIB);
    // Hardened mode takes blocks at random places, and so touches most pages of each slab.
    require_that(kept < early + (in_hardened_mode() ? 64 : 24) * MIB,
                 "RSS is %zu KiB after threads that all ended", kept / KIB);
    require_that(late < early + lost_bytes_max(), "RSS grew by %zu KiB over the threads",
                 (late - early) / KIB);
    return 0;
}
