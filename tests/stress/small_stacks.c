// Every entry point on threads with stacks of 16 KiB, the smallest there are.
#include "behaviour.h"

static uint64_t base_seed;

static void *work(void *argument) {
    uint64_t seed = random_stream(base_seed, (uint64_t)(uintptr_t)argument);
    for (int i = 0; i < 60; i++) {
        void *blocks[10];
        size_t bytes = random_log_size(&seed, i % 10 == 0 ? 3 * MIB : 20000);
        blocks[0] = malloc(bytes);
        blocks[1] = calloc(1, bytes);
        blocks[2] = realloc(NULL, bytes);
        blocks[3] = reallocarray(NULL, 2, bytes);
        blocks[4] = memalign(256, bytes);
        blocks[5] = aligned_alloc(4096, bytes);
        require(posix_memalign(&blocks[6], 64, bytes) == 0);
        blocks[7] = valloc(bytes);
        blocks[8] = pvalloc(bytes);
        blocks[9] = malloc(5 * MIB);
        for (int b = 0; b < 10; b++) {
            require(blocks[b] != NULL && malloc_usable_size(blocks[b]) >= bytes);
            if (b % 2 == 0) {
                blocks[b] = realloc(blocks[b], bytes * 2 + 1);
                require(blocks[b] != NULL);
            }
        }
        for (int b = 0; b < 10; b++) {
            free(blocks[b]);
        }
        if (i % 20 == 0) {
            malloc_trim(0);
            struct mallinfo2 info = mallinfo2();
            require(info.arena >= info.uordblks);
            mallopt(M_TRIM_THRESHOLD, 128 * 1024);
        }
    }
    return NULL;
}

int main(void) {
    behaviour_require_allocator();
    base_seed = behaviour_seed();
    for (uintptr_t round = 0; round < 10; round++) {
        pthread_t threads[4];
        for (uintptr_t i = 0; i < 4; i++) {
            start_thread(&threads[i], 16 * KIB, work, (void *)(round * 4 + i + 1));
        }
        for (int i = 0; i < 4; i++) {
            require(pthread_join(threads[i], NULL) == 0);
        }
    }
    behaviour_require_sound_heap();
    return 0;
}
