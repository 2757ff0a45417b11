// A library that guards its own state across fork: its constructor registers handlers before anything allocates, and
// they take a lock that other threads hold while they allocate.
#include "behaviour.h"

void hold_and_allocate(uint64_t *seed);

static pthread_mutex_t state_lock = PTHREAD_MUTEX_INITIALIZER;
static void *state;

static void renew_state(size_t bytes) {
    free(state);
    state = malloc(bytes);
    require(state != NULL);
    memset(state, 1, bytes);
}

static void prepare(void) {
    require(pthread_mutex_lock(&state_lock) == 0);
    renew_state(100 * KIB);
}

static void release(void) {
    renew_state(500);
    require(pthread_mutex_unlock(&state_lock) == 0);
}

__attribute__((constructor)) static void register_handlers(void) {
    require(pthread_atfork(prepare, release, release) == 0);
}

// Blocks that no thread's cache has at hand.
void hold_and_allocate(uint64_t *seed) {
    void *blocks[20];
    require(pthread_mutex_lock(&state_lock) == 0);
    for (size_t i = 0; i < 20; i++) {
        blocks[i] = malloc(40 * KIB + random_below(seed, 100 * KIB));
        require(blocks[i] != NULL);
    }
    for (size_t i = 0; i < 20; i++) {
        free(blocks[i]);
    }
    require(pthread_mutex_unlock(&state_lock) == 0);
}
