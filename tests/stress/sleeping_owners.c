// Threads that fill a table, each with blocks of other sizes, and then sleep, while the main thread frees them all:
// the next one must have the memory at once, whose slabs belong to heaps that nobody comes back to.
#include "behaviour.h"

#include <semaphore.h>

enum { OWNERS = 5, TABLE_BYTES = 64 * 1024 * 1024, BLOCKS_MAX = TABLE_BYTES / 176 };

static void *blocks[BLOCKS_MAX];

struct owner {
    size_t block_count, bytes_min, bytes_max;
    pthread_t thread;
    sem_t filled, released;
};

static void *fill_and_sleep(void *argument) {
    struct owner *owner = argument;
    uint64_t seed = owner->block_count;
    for (size_t i = 0; i < owner->block_count; i++) {
        const size_t bytes =
            owner->bytes_min + random_below(&seed, owner->bytes_max - owner->bytes_min);
        blocks[i] = malloc(bytes);
        require(blocks[i] != NULL);
        memset(blocks[i], 1, bytes);
    }
    sem_post(&owner->filled);
    sem_wait(&owner->released);
    return NULL;
}

int main(void) {
    behaviour_require_allocator();
    const size_t before = rss_bytes();
    struct owner owners[OWNERS];
    uint64_t fill_ms = 0;
    for (size_t i = 0; i < OWNERS; i++) {
        struct owner *owner = &owners[i];
        owner->bytes_min = 32 + 32 * i;
        owner->bytes_max = 320 + 32 * i;
        owner->block_count = TABLE_BYTES / ((owner->bytes_min + owner->bytes_max) / 2);
        require(owner->block_count <= BLOCKS_MAX);
        sem_init(&owner->filled, 0, 0);
        sem_init(&owner->released, 0, 0);
        const uint64_t began_ms = now_ms();
        require(pthread_create(&owner->thread, NULL, fill_and_sleep, owner) == 0);
        sem_wait(&owner->filled);
        fill_ms = now_ms() - began_ms > fill_ms ? now_ms() - began_ms : fill_ms;
        for (size_t j = 0; j < owner->block_count; j++) {
            free(blocks[j]);
        }
        sleep_ms(40);  // long enough to be seen asleep
    }
    const size_t peak = rss_peak_bytes() - before;
    behaviour_say("%d owners in turn, %d MiB each, filled in %llu ms: %zu MiB at most", OWNERS,
                  TABLE_BYTES / (int)MIB, (unsigned long long)fill_ms, peak / MIB);
    require_that(10 * peak < 14 * (size_t)TABLE_BYTES, "%zu MiB at most", peak / MIB);
    for (size_t i = 0; i < OWNERS; i++) {
        sem_post(&owners[i].released);
        pthread_join(owners[i].thread, NULL);
    }
    behaviour_require_sound_heap();
    return 0;
}
