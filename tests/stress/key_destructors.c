// Thread-specific data whose destructors allocate, free, and set other keys again, in any order and
// for all the rounds that the C library grants. Keys are created before the program's first malloc
// and after it, so that some destructors run before the allocator's own and some after.
#include "behaviour.h"

enum { KEY_COUNT = 12, THREAD_COUNT = 1500 };

static pthread_key_t keys[KEY_COUNT];
static _Atomic unsigned long destructions;

static void destroy(void *value) {
    unsigned char *block = (unsigned char *)value;
    require(block[0] == 0x77);
    uint64_t seed = block[2];
    // Through every route: small, large, resized, aligned.
    for (int i = 0; i < 8; i++) {
        size_t bytes = random_log_size(&seed, i == 0 ? 150000 : 2000);
        char *scratch = (char *)malloc(bytes);
        require(scratch != NULL);
        scratch[bytes - 1] = 1;
        scratch = (char *)realloc(scratch, bytes * 2);
        require(scratch != NULL);
        free(scratch);
    }
    unsigned char rounds_left = block[1];
    size_t key = block[2];
    free(block);
    destructions++;
    if (rounds_left > 0) {
        // Another key gets a value again: one more round of destructors.
        block = (unsigned char *)memalign(64, 128);
        require(block != NULL);
        block[0] = 0x77;
        block[1] = (unsigned char)(rounds_left - 1);
        block[2] = (unsigned char)((key * 7 + 3) % KEY_COUNT);
        void *old = pthread_getspecific(keys[block[2]]);
        if (old != NULL) {
            free(old);
        }
        require(pthread_setspecific(keys[block[2]], block) == 0);
    }
}

static void create_keys(size_t from, size_t to) {
    for (size_t i = from; i < to; i++) {
        require(pthread_key_create(&keys[i], destroy) == 0);
    }
}

// Before main and before this program has allocated anything.
__attribute__((constructor(101))) static void create_early(void) {
    create_keys(0, KEY_COUNT / 2);
}

static void *live(void *argument) {
    uintptr_t number = (uintptr_t)argument;
    for (size_t i = 0; i < KEY_COUNT; i++) {
        // Some threads allocate nothing at all before their destructors do.
        if ((number + i) % 3 != 0) {
            unsigned char *block = (unsigned char *)malloc(64 + i * 100);
            require(block != NULL);
            block[0] = 0x77;
            block[1] = (unsigned char)(number % 4);
            block[2] = (unsigned char)i;
            require(pthread_setspecific(keys[i], block) == 0);
        }
    }
    return NULL;
}

int main(void) {
    behaviour_require_allocator();
    free(malloc(10));
    create_keys(KEY_COUNT / 2, KEY_COUNT);
    size_t early = 0;
    for (uintptr_t i = 0; i < THREAD_COUNT; i += 3) {
        pthread_t threads[3];
        for (uintptr_t t = 0; t < 3; t++) {
            start_thread(&threads[t], 64 * KIB, live, (void *)(i + t));
        }
        for (uintptr_t t = 0; t < 3; t++) {
            require(pthread_join(threads[t], NULL) == 0);
        }
        if (i == THREAD_COUNT / 5) {
            malloc_trim(0);
            early = rss_bytes();
        }
    }
    require(destructions > (unsigned long)THREAD_COUNT * KEY_COUNT / 2);
    behaviour_require_sound_heap();
    malloc_trim(0);
    size_t late = rss_bytes();
    behaviour_say("%lu destructions, RSS %zu KiB, then %zu KiB", destructions, early / KIB,
                  late / KIB);
    require_that(late < early + lost_bytes_max(),
                 "RSS grew by %zu KiB: memory is lost at thread exit", (late - early) / KIB);
    return 0;
}
