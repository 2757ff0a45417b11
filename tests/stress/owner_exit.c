// Owners allocate, hand everything over and end at once, while others are freeing their blocks.
#include "behaviour.h"

#include <sched.h>
#include <stdatomic.h>

enum { ROUND_COUNT = 300, BLOCK_COUNT = 2000, FREER_COUNT = 3 };

static uint64_t base_seed;

struct hand_over {
    void *blocks[BLOCK_COUNT];
    uint32_t sizes[BLOCK_COUNT];
    _Atomic unsigned int ready;  // blocks [0, ready) may be taken
    _Atomic unsigned int taken;
};

static struct hand_over hand_over;
static pthread_barrier_t barrier;
static volatile bool done;

static void *own(void *argument) {
    uint64_t seed = random_stream(base_seed, (uint64_t)(uintptr_t)argument);
    size_t max = (size_t)64 << random_below(&seed, 8);
    for (unsigned int i = 0; i < BLOCK_COUNT; i++) {
        size_t bytes = random_log_size(&seed, max);
        hand_over.blocks[i] = malloc(bytes);
        require(hand_over.blocks[i] != NULL);
        pattern_fill(hand_over.blocks[i], bytes, i);
        hand_over.sizes[i] = (uint32_t)bytes;
        if (i % 16 == 15) {
            hand_over.ready = i + 1;
        }
    }
    return NULL;
}

static void take_all(void) {
    for (;;) {
        unsigned int at = hand_over.taken;
        if (at == BLOCK_COUNT) {
            return;
        }
        if (at >= hand_over.ready ||
            !atomic_compare_exchange_strong(&hand_over.taken, &at, at + 1)) {
            sched_yield();
            continue;
        }
        require(pattern_differs(hand_over.blocks[at], hand_over.sizes[at], at) ==
                hand_over.sizes[at]);
        free(hand_over.blocks[at]);
    }
}

static void *free_for_others(void *argument) {
    (void)argument;
    for (;;) {
        pthread_barrier_wait(&barrier);
        if (done) {
            return NULL;
        }
        take_all();
        pthread_barrier_wait(&barrier);
    }
}

int main(void) {
    behaviour_require_allocator();
    base_seed = behaviour_seed();
    pthread_t freers[FREER_COUNT];
    require(pthread_barrier_init(&barrier, NULL, FREER_COUNT + 1) == 0);
    for (int i = 0; i < FREER_COUNT; i++) {
        start_thread(&freers[i], 0, free_for_others, NULL);
    }
    // Resident and live, with the same threads alive, after a third of the owners and after all.
    size_t early = 0, live_early = 0, late = 0, live_late = 0;
    for (uintptr_t round = 0; round < ROUND_COUNT; round++) {
        hand_over.ready = 0;
        hand_over.taken = 0;
        pthread_t owner;
        start_thread(&owner, 0, own, (void *)(round + 1));
        pthread_barrier_wait(&barrier);
        require(pthread_join(owner, NULL) == 0);
        pthread_barrier_wait(&barrier);
        if (round == ROUND_COUNT / 3 || round == ROUND_COUNT - 1) {
            malloc_trim(0);
            early = late;
            live_early = live_late;
            late = rss_bytes();
            live_late = mallinfo2().uordblks;
        }
    }
    done = true;
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < FREER_COUNT; i++) {
        require(pthread_join(freers[i], NULL) == 0);
    }
    behaviour_require_sound_heap();
    behaviour_say("after a third %zu KiB resident, %zu bytes live; at the end %zu KiB, %zu bytes",
                  early / KIB, live_early, late / KIB, live_late);
    // What glibc has resident is 2.6 to 4 MiB at any time: which of its arenas an owner finds free decides.
    require_that(!behaviour_on_hakmem() || late < early + MIB / 2,
                 "RSS grew by %zu KiB over the owners", (late - early) / KIB);
    // Less than a block for each owner; glibc counts one of its arenas only.
    require_that(!behaviour_on_hakmem() || live_late < live_early + KIB,
                 "%zu bytes more are live after %d owners", live_late - live_early,
                 ROUND_COUNT - ROUND_COUNT / 3);
    return 0;
}
