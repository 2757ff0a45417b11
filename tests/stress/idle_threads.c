// A thousand threads that once used a lot and then do nothing must not hold it: while one thread goes on
// working, the memory of each idle thread's cache (the free blocks in it, its magazines, its own
// structures) stays below the bound, and so does what is resident for it.
#include "behaviour.h"

enum { BLOCK_COUNT = 120, THREADS_MAX = 1000, MAILBOX_COUNT = 64 };

static pthread_barrier_t used;
static pthread_mutex_t park = PTHREAD_MUTEX_INITIALIZER;
static void *_Atomic mailboxes[MAILBOX_COUNT];
static uint64_t base_seed, round_count;

static void *new_block(uint64_t *seed) {
    // All classes; few of the long ones.
    const size_t bytes = random_log_size(seed, random_below(seed, 20) == 0 ? 40000 : 1500);
    void *block = malloc(bytes);
    require(block != NULL);
    memset(block, 1, bytes);
    return block;
}

static void *use_then_idle(void *argument) {
    uint64_t seed = random_stream(base_seed, (uint64_t)(uintptr_t)argument);
    void *blocks[BLOCK_COUNT] = {NULL};
    for (uint64_t i = 0; i < round_count; i++) {
        const size_t at = random_below(&seed, BLOCK_COUNT);
        free(blocks[at]);
        blocks[at] = new_block(&seed);
        if (i % 8 == 0) {
            // What another thread allocated.
            void *_Atomic *mailbox = &mailboxes[random_below(&seed, MAILBOX_COUNT)];
            free(__atomic_exchange_n((void **)(uintptr_t)mailbox, new_block(&seed),
                                     __ATOMIC_ACQ_REL));
        }
    }
    for (int i = 0; i < BLOCK_COUNT; i++) {
        free(blocks[i]);
    }
    pthread_barrier_wait(&used);
    pthread_mutex_lock(&park);
    pthread_mutex_unlock(&park);
    return NULL;
}

// One thread works, and ticks.
static void work_for(unsigned int ms) {
    const uint64_t end = now_ms() + ms;
    uint64_t seed = 5;
    // Also on a busy machine there is activity: a round every 10 ms at least.
    for (unsigned int rounds = 0; now_ms() < end || rounds < ms / 10; rounds++) {
        void *blocks[500];
        for (int i = 0; i < 500; i++) {
            blocks[i] = malloc(16 + random_below(&seed, 3000));
            require(blocks[i] != NULL);
        }
        for (int i = 0; i < 500; i++) {
            free(blocks[i]);
        }
        sleep_ms(5);
    }
}

// What malloc_stats prints, in `text`.
static void read_statistics(char *text, size_t bytes) {
    const int file = memfd_create("statistics", 0);
    const int shown = dup(2);
    require(file >= 0 && shown >= 0 && dup2(file, 2) == 2);
    malloc_stats();
    require(dup2(shown, 2) == 2 && close(shown) == 0);
    const ssize_t got = pread(file, text, bytes - 1, 0);
    require(got > 0 && close(file) == 0);
    text[got] = '\0';
}

static size_t statistic(const char *text, const char *name) {
    const char *row = strstr(text, name);
    require_that(row != NULL, "malloc_stats tells no %s", name);
    return strtoul(row + strlen(name), NULL, 10);
}

// The memory of one idle thread's cache. The program holds nothing: what counts as live is on its way to
// its owners, in tables of remote frees.
static size_t cache_bytes_of_each(size_t threads) {
    static char text[32768];
    read_statistics(text, sizeof text);
    const size_t cached = statistic(text, "\n  cached_bytes ") / threads;
    const size_t remote = statistic(text, "\n  live_bytes ") / threads;
    const size_t structures = statistic(text, "\n  cache_structure_bytes ") / threads;
    behaviour_say(
        "each cache: free blocks %zu KiB, on their way to others %zu KiB, structures %zu KiB",
        cached / KIB, remote / KIB, structures / KIB);
    return cached + remote + structures;
}

int main(int count, char **values) {
    behaviour_require_allocator();
    require_that(count == 5,
                 "usage: idle_threads THREADS BLOCKS CACHE_KIB_PER_THREAD RSS_KIB_PER_THREAD");
    base_seed = behaviour_seed();
    const size_t threads_wanted = strtoul(values[1], NULL, 10);
    round_count = strtoul(values[2], NULL, 10);
    const size_t cache_max = strtoul(values[3], NULL, 10) * KIB;
    const size_t rss_max = strtoul(values[4], NULL, 10) * KIB;
    require(threads_wanted >= 1 && threads_wanted <= THREADS_MAX);
    const size_t before = rss_bytes();
    require(pthread_barrier_init(&used, NULL, (unsigned)threads_wanted + 1) == 0);
    pthread_mutex_lock(&park);
    static pthread_t threads[THREADS_MAX];
    for (uintptr_t i = 0; i < threads_wanted; i++) {
        start_thread(&threads[i], 64 * KIB, use_then_idle, (void *)(i + 1));
    }
    pthread_barrier_wait(&used);
    const size_t busy = rss_bytes();
    work_for(4000);
    const size_t idle = (rss_bytes() - before) / threads_wanted;
    size_t cache_bytes = 0;
    if (behaviour_on_hakmem()) {
        cache_bytes = cache_bytes_of_each(threads_wanted);
    }
    behaviour_say(
        "%zu threads: resident %zu KiB at the start, %zu KiB after use; idle %zu KiB each",
        threads_wanted, before / KIB, busy / KIB, idle / KIB);
    pthread_mutex_unlock(&park);
    for (size_t i = 0; i < threads_wanted; i++) {
        require(pthread_join(threads[i], NULL) == 0);
    }
    for (size_t i = 0; i < MAILBOX_COUNT; i++) {
        free(mailboxes[i]);
    }
    behaviour_require_sound_heap();
    require_that(cache_bytes < cache_max, "%zu KiB of cache a thread while idle, %s are allowed",
                 cache_bytes / KIB, values[3]);
    require_that(idle < rss_max, "%zu KiB a thread are resident while idle, %s are allowed",
                 idle / KIB, values[4]);
    return 0;
}
