// Hundreds of threads that once used a lot and then do nothing must not hold it: what each keeps
// while idle is bounded, while one thread goes on working.
#include "behaviour.h"

enum { THREAD_COUNT = 300 };

static pthread_barrier_t used;
static pthread_mutex_t park = PTHREAD_MUTEX_INITIALIZER;

static void *use_then_idle(void *argument) {
    uint64_t seed = (uint64_t)(uintptr_t)argument;
    enum { COUNT = 1500 };
    void *blocks[COUNT];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < COUNT; i++) {
            size_t bytes = 16 + random_below(&seed, 1400);
            blocks[i] = malloc(bytes);
            require(blocks[i] != NULL);
            memset(blocks[i], 1, bytes);
        }
        for (int i = 0; i < COUNT; i++) {
            free(blocks[i]);
        }
    }
    pthread_barrier_wait(&used);
    pthread_mutex_lock(&park);
    pthread_mutex_unlock(&park);
    return NULL;
}

int main(int count, char **values) {
    behaviour_require_allocator();
    require_that(count == 2, "usage: idle_threads KIB_PER_THREAD");
    size_t bound = strtoul(values[1], NULL, 10) * KIB * THREAD_COUNT;
    size_t before = rss_bytes();
    require(pthread_barrier_init(&used, NULL, THREAD_COUNT + 1) == 0);
    pthread_mutex_lock(&park);
    pthread_t threads[THREAD_COUNT];
    for (uintptr_t i = 0; i < THREAD_COUNT; i++) {
        start_thread(&threads[i], 64 * KIB, use_then_idle, (void *)(i + 1));
    }
    pthread_barrier_wait(&used);
    size_t busy = rss_bytes();
    uint64_t end = now_ms() + 4000;
    uint64_t seed = 5;
    for (unsigned int rounds = 0; now_ms() < end || rounds < 300; rounds++) {
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
    size_t idle = rss_bytes();
    behaviour_say("start %zu KiB, after use %zu KiB, idle %zu KiB: %zu KiB a thread", before / KIB,
                  busy / KIB, idle / KIB, (idle - before) / KIB / THREAD_COUNT);
    pthread_mutex_unlock(&park);
    for (int i = 0; i < THREAD_COUNT; i++) {
        require(pthread_join(threads[i], NULL) == 0);
    }
    behaviour_require_sound_heap();
    require_that(idle < before + bound, "%zu KiB a thread are held while idle, %s are allowed",
                 (idle - before) / KIB / THREAD_COUNT, values[1]);
    return 0;
}
