// Threads that only allocate and threads that only free, in all proportions. Memory must stay near
// what is in flight, whoever owns the slabs; a leak of every block that crosses would be 100 times
// the bound.
#include "behaviour.h"

enum { RING_SLOTS = 8192, BLOCK_COUNT = 4000000, THREADS_MAX = 8 };

static uint64_t base_seed;

struct ring {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t head;
    size_t tail;
    unsigned int producers;
    void *slot[RING_SLOTS];
};

static struct ring ring;
static size_t blocks_per_producer;
static size_t size_max;

enum { BURST = 128 };

static void *produce(void *argument) {
    uint64_t seed = random_stream(base_seed, (uint64_t)(uintptr_t)argument);
    void *burst[BURST];
    for (size_t made = 0; made < blocks_per_producer; made += BURST) {
        for (int i = 0; i < BURST; i++) {
            size_t bytes = 16 + random_below(&seed, size_max);
            burst[i] = malloc(bytes);
            require(burst[i] != NULL);
            memset(burst[i], 1, bytes);
        }
        pthread_mutex_lock(&ring.lock);
        while (ring.head - ring.tail > RING_SLOTS - BURST) {
            pthread_cond_wait(&ring.changed, &ring.lock);
        }
        for (int i = 0; i < BURST; i++) {
            ring.slot[ring.head++ % RING_SLOTS] = burst[i];
        }
        pthread_cond_broadcast(&ring.changed);
        pthread_mutex_unlock(&ring.lock);
    }
    pthread_mutex_lock(&ring.lock);
    ring.producers--;
    pthread_cond_broadcast(&ring.changed);
    pthread_mutex_unlock(&ring.lock);
    return NULL;
}

static void *consume(void *argument) {
    (void)argument;
    void *burst[BURST];
    for (;;) {
        size_t got = 0;
        pthread_mutex_lock(&ring.lock);
        while (ring.head == ring.tail && ring.producers > 0) {
            pthread_cond_wait(&ring.changed, &ring.lock);
        }
        while (got < BURST && ring.tail < ring.head) {
            burst[got++] = ring.slot[ring.tail++ % RING_SLOTS];
        }
        pthread_cond_broadcast(&ring.changed);
        pthread_mutex_unlock(&ring.lock);
        if (got == 0) {
            return NULL;
        }
        for (size_t i = 0; i < got; i++) {
            free(burst[i]);
        }
    }
}

int main(int count, char **values) {
    behaviour_require_allocator();
    base_seed = behaviour_seed();
    require_that(count == 4, "usage: producer_consumer PRODUCERS CONSUMERS SIZE_MAX");
    unsigned int producers = (unsigned int)strtoul(values[1], NULL, 10);
    unsigned int consumers = (unsigned int)strtoul(values[2], NULL, 10);
    size_max = strtoul(values[3], NULL, 10);
    require(producers >= 1 && consumers >= 1 && producers + consumers <= THREADS_MAX);
    blocks_per_producer = BLOCK_COUNT / producers;
    if (size_max > 1000) {
        blocks_per_producer /= 8;
    }
    ring.producers = producers;
    pthread_mutex_init(&ring.lock, NULL);
    pthread_cond_init(&ring.changed, NULL);
    size_t before = rss_bytes();
    pthread_t threads[THREADS_MAX];
    for (uintptr_t i = 0; i < producers; i++) {
        start_thread(&threads[i], 0, produce, (void *)(i + 1));
    }
    for (uintptr_t i = 0; i < consumers; i++) {
        start_thread(&threads[producers + i], 0, consume, NULL);
    }
    for (unsigned int i = 0; i < producers + consumers; i++) {
        require(pthread_join(threads[i], NULL) == 0);
    }
    behaviour_require_sound_heap();
    size_t in_flight = (RING_SLOTS + BURST * (producers + consumers)) * (16 + size_max);
    size_t passed = blocks_per_producer * producers * (16 + size_max / 2);
    size_t bound = in_flight + in_flight / 2 + 12 * MIB;
    size_t peak = rss_peak_bytes();
    behaviour_say("passed %zu MiB, in flight %zu KiB, peak RSS %zu KiB over %zu KiB", passed / MIB,
                  in_flight / KIB, (peak - before) / KIB, before / KIB);
    require(passed > 3 * bound);
    require_that(peak < before + bound, "peak RSS grew by %zu KiB, %zu KiB are in flight at most",
                 (peak - before) / KIB, in_flight / KIB);
    return 0;
}
