// Threads of a short life in chains, each of which frees what the one before it left; blocks wait in caches without a
// thread meanwhile. The process forks all the time; its children do the same, and end in order, where what was freed is
// checked. In the end one thread is left, and gets back what nobody took.
#include "behaviour.h"

enum {
    CHAIN_COUNT = 4,
    FORK_COUNT = 40,
    BLOCK_COUNT = 60,
    CHILD_THREADS = 20,
    CHILD_SECONDS = 120
};

struct chain {
    uint64_t seed;
    void *blocks[BLOCK_COUNT];
    size_t sizes[BLOCK_COUNT];
};

static _Atomic bool stopped;
static _Atomic unsigned long lives;

static void free_blocks(struct chain *chain) {
    for (size_t i = 0; i < BLOCK_COUNT; i++) {
        if (chain->blocks[i] != NULL) {
            require(pattern_differs(chain->blocks[i], chain->sizes[i], i) == chain->sizes[i]);
            free(chain->blocks[i]);
            chain->blocks[i] = NULL;
        }
    }
}

static void *live_shortly(void *argument) {
    struct chain *chain = argument;
    free_blocks(chain);
    for (size_t i = 0; i < BLOCK_COUNT; i++) {
        chain->sizes[i] = random_log_size(&chain->seed, i == 0 ? 100000 : 3000);
        chain->blocks[i] = malloc(chain->sizes[i]);
        require(chain->blocks[i] != NULL);
        pattern_fill(chain->blocks[i], chain->sizes[i], i);
    }
    for (size_t i = 0; i < BLOCK_COUNT; i++) {
        if (i % 8 != 0) {
            require(pattern_differs(chain->blocks[i], chain->sizes[i], i) == chain->sizes[i]);
            free(chain->blocks[i]);
            chain->blocks[i] = NULL;
        }
    }
    lives++;
    return NULL;
}

static void live_and_die(struct chain *chain) {
    pthread_t thread;
    start_thread(&thread, 64 * KIB, live_shortly, chain);
    require(pthread_join(thread, NULL) == 0);
}

static void *go_on(void *argument) {
    while (!stopped) {
        live_and_die(argument);
    }
    free_blocks(argument);
    return NULL;
}

__attribute__((noreturn)) static void be_a_child(uint64_t seed) {
    alarm(CHILD_SECONDS);
    struct chain chain = {.seed = seed};
    for (int i = 0; i < CHILD_THREADS; i++) {
        live_and_die(&chain);
    }
    free_blocks(&chain);
    behaviour_require_sound_heap();
    exit(0);
}

static void fork_beside_chains(uint64_t seed) {
    for (int forks = 0; forks < FORK_COUNT; forks++) {
        const unsigned long before = lives;
        for (int i = 0; i < 1000 && lives < before + 50; i++) {
            sleep_ms(1);
        }
        const pid_t child = fork();
        require(child >= 0);
        if (child == 0) {
            be_a_child(behaviour_random(&seed));
        }
        int status = -1;
        require(waitpid(child, &status, 0) == child);
        require_that(WIFEXITED(status) && WEXITSTATUS(status) == 0,
                     "a forked child ended with status %#x", (unsigned int)status);
    }
}

// What is cached must come down to what one thread has, with a slow path of the only one that is left.
static void require_nothing_waits(void) {
    if (!behaviour_on_hakmem()) {
        return;
    }
    const size_t bytes_max = 256 * KIB;
    size_t cached = 0;
    for (int i = 0; i < 50; i++) {
        sleep_ms(100);
        free(malloc(100000));
        cached = mallinfo2().fsmblks;
        if (cached < bytes_max) {
            return;
        }
    }
    require_that(false, "%zu KiB are cached after the last thread", cached / KIB);
}

int main(void) {
    behaviour_require_allocator();
    const uint64_t seed = behaviour_seed();
    const size_t live_before = mallinfo2().uordblks;
    static struct chain chains[CHAIN_COUNT];
    pthread_t threads[CHAIN_COUNT];
    for (size_t i = 0; i < CHAIN_COUNT; i++) {
        chains[i].seed = random_stream(seed, i);
        start_thread(&threads[i], 0, go_on, &chains[i]);
    }
    fork_beside_chains(random_stream(seed, CHAIN_COUNT));
    stopped = true;
    for (size_t i = 0; i < CHAIN_COUNT; i++) {
        require(pthread_join(threads[i], NULL) == 0);
    }
    const size_t cached = behaviour_on_hakmem() ? mallinfo2().fsmblks : 0;
    behaviour_say("%lu threads, %zu KiB cached after the last", lives, cached / KIB);
    // As much as one thread that sleeps may have, and what this one has.
    require_that(cached < 8 * MIB, "%zu KiB are cached after the last thread", cached / KIB);
    require_nothing_waits();
    behaviour_require_sound_heap();
    malloc_trim(0);
    const size_t live_after = mallinfo2().uordblks;
    require_that(!behaviour_on_hakmem() || live_after < live_before + 64 * KIB,
                 "%zu KiB are live, %zu KiB were before the threads", live_after / KIB,
                 live_before / KIB);
    return 0;
}
