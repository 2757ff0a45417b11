// Eight threads allocate without a pause and each of them forks; the children allocate, resize and
// free blocks of all kinds, their own and inherited ones, start threads and end in both ways.
// Handlers of pthread_atfork allocate too, some registered before the first malloc of main and some
// after.
#include "behaviour.h"

enum { THREAD_COUNT = 8, FORK_COUNT = 12, KEPT_COUNT = 64 };

static _Atomic unsigned int handlers_ran;

static void allocate_in_handler(void) {
    for (size_t bytes = 10; bytes < 100000; bytes *= 7) {
        void *block = malloc(bytes);
        require(block != NULL);
        memset(block, 3, bytes);
        block = realloc(block, bytes * 2);
        require(block != NULL);
        free(block);
    }
    handlers_ran++;
}

__attribute__((constructor)) static void register_early(void) {
    require(pthread_atfork(allocate_in_handler, allocate_in_handler, allocate_in_handler) == 0);
}

static void use_every_kind(uint64_t seed) {
    void *kept[KEPT_COUNT] = {NULL};
    size_t sizes[KEPT_COUNT];
    for (int i = 0; i < 600; i++) {
        size_t at = random_below(&seed, KEPT_COUNT);
        if (kept[at] != NULL) {
            require(pattern_differs(kept[at], sizes[at], at) == sizes[at]);
            free(kept[at]);
        }
        sizes[at] = random_log_size(&seed, i % 100 == 0 ? 6 * MIB : 40000);
        kept[at] = i % 3 == 0 ? memalign(64, sizes[at]) : malloc(sizes[at]);
        require(kept[at] != NULL);
        size_t filled = sizes[at] < 40000 ? sizes[at] : 40000;
        sizes[at] = filled;
        pattern_fill(kept[at], filled, at);
    }
    for (size_t at = 0; at < KEPT_COUNT; at++) {
        free(kept[at]);
    }
}

static void *in_a_thread_of_the_child(void *argument) {
    use_every_kind((uint64_t)(uintptr_t)argument);
    return NULL;
}

struct kept {
    void *block;
    size_t bytes;
};

__attribute__((noreturn)) static void be_a_child(struct kept *kept, uint64_t seed) {
    alarm(20);
    for (size_t i = 0; i < KEPT_COUNT; i++) {
        if (kept[i].block != NULL) {
            require(pattern_differs(kept[i].block, kept[i].bytes, kept[i].bytes) == kept[i].bytes);
            if (i % 2 == 0) {
                kept[i].block = realloc(kept[i].block, kept[i].bytes * 2);
                require(kept[i].block != NULL);
            }
            free(kept[i].block);
        }
    }
    use_every_kind(seed);
    pthread_t thread;
    start_thread(&thread, 0, in_a_thread_of_the_child, (void *)(uintptr_t)seed);
    require(pthread_join(thread, NULL) == 0);
    behaviour_require_sound_heap();
    if (seed % 2 == 0) {
        exit(0);
    }
    _exit(0);
}

static void *load(void *argument) {
    uint64_t seed = (uint64_t)(uintptr_t)argument;
    struct kept kept[KEPT_COUNT] = {{NULL, 0}};
    for (int forks = 0; forks < FORK_COUNT;) {
        for (int i = 0; i < 2000; i++) {
            struct kept *place = &kept[random_below(&seed, KEPT_COUNT)];
            free(place->block);
            place->bytes = random_log_size(&seed, i % 200 == 0 ? MIB : 8000);
            place->block = malloc(place->bytes);
            require(place->block != NULL);
            pattern_fill(place->block, place->bytes, place->bytes);
        }
        pid_t child = fork();
        if (child == 0) {
            be_a_child(kept, behaviour_random(&seed));
        }
        if (child < 0) {
            require(errno == EAGAIN || errno == ENOMEM);
            continue;
        }
        forks++;
        int status = -1;
        require(waitpid(child, &status, 0) == child);
        require_that(WIFEXITED(status) && WEXITSTATUS(status) == 0,
                     "a forked child ended with status %#x", (unsigned int)status);
    }
    for (size_t i = 0; i < KEPT_COUNT; i++) {
        free(kept[i].block);
    }
    return NULL;
}

int main(void) {
    behaviour_require_allocator();
    require(pthread_atfork(allocate_in_handler, allocate_in_handler, allocate_in_handler) == 0);
    pthread_t threads[THREAD_COUNT];
    for (uintptr_t i = 0; i < THREAD_COUNT; i++) {
        start_thread(&threads[i], 0, load, (void *)(i + 1));
    }
    for (int i = 0; i < THREAD_COUNT; i++) {
        require(pthread_join(threads[i], NULL) == 0);
    }
    // Two sets of handlers, two of the three handlers in the parent.
    require(handlers_ran == 2 * 2 * THREAD_COUNT * FORK_COUNT);
    behaviour_require_sound_heap();
    return 0;
}
