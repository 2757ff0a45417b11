// Eight threads allocate without a pause and each of them forks; the children allocate, resize and
// free blocks of all kinds, their own and inherited ones, start threads and end in both ways.
// Handlers of pthread_atfork allocate too, some registered before the first malloc of main and some
// after.
//
// Without an argument each thread forks a few times; with one, all of them for so many minutes. A
// watchdog ends a run in which no fork, and no round of allocations, completes for a while.
#include "behaviour.h"

enum { THREAD_COUNT = 8, FORK_COUNT = 12, KEPT_COUNT = 64 };

// Nothing at all happens for so long only where threads wait for each other, also on a busy machine.
enum { STALL_MS = 120000, CHILD_SECONDS = 300 };

static _Atomic unsigned int handlers_ran;
static _Atomic unsigned long forks_done, rounds_done;
static _Atomic bool all_done;
static uint64_t base_seed, end_ms;

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
    alarm(CHILD_SECONDS);
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

static bool wants_more_forks(int forks) {
    return end_ms == 0 ? forks < FORK_COUNT : now_ms() < end_ms;
}

static void *load(void *argument) {
    uint64_t seed = random_stream(base_seed, (uint64_t)(uintptr_t)argument);
    struct kept kept[KEPT_COUNT] = {{NULL, 0}};
    for (int forks = 0; wants_more_forks(forks);) {
        for (int i = 0; i < 2000; i++) {
            struct kept *place = &kept[random_below(&seed, KEPT_COUNT)];
            free(place->block);
            place->bytes = random_log_size(&seed, i % 200 == 0 ? MIB : 8000);
            place->block = malloc(place->bytes);
            require(place->block != NULL);
            pattern_fill(place->block, place->bytes, place->bytes);
        }
        rounds_done++;
        pid_t child = fork();
        if (child == 0) {
            be_a_child(kept, behaviour_random(&seed));
        }
        if (child < 0) {
            require(errno == EAGAIN || errno == ENOMEM);
            continue;
        }
        forks++;
        forks_done++;
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

// Allocates nothing, and so waits for no lock of the heap. Without it, too, the minutes are told.
static void *watch(void *argument) {
    (void)argument;
    uint64_t moved_ms = now_ms();
    uint64_t told_ms = moved_ms;
    unsigned long seen = 0;
    while (!all_done) {
        sleep_ms(50);
        const uint64_t now = now_ms();
        const unsigned long progress = forks_done + rounds_done;
        if (progress != seen) {
            seen = progress;
            moved_ms = now;
        }
        require_that(now < moved_ms + STALL_MS,
                     "deadlock: nothing for %d s after %lu forks and %lu rounds", STALL_MS / 1000,
                     (unsigned long)forks_done, (unsigned long)rounds_done);
        if (now >= told_ms + 60000) {
            told_ms = now;
            behaviour_say("%lu forks, %lu rounds, RSS %zu KiB", (unsigned long)forks_done,
                          (unsigned long)rounds_done, rss_bytes() / KIB);
        }
    }
    return NULL;
}

int main(int count, char **values) {
    behaviour_require_allocator();
    require_that(count <= 2, "usage: fork_load [MINUTES]");
    base_seed = behaviour_seed();
    const unsigned long minutes = count == 2 ? strtoul(values[1], NULL, 10) : 0;
    end_ms = count == 2 ? now_ms() + minutes * 60000 : 0;
    require(pthread_atfork(allocate_in_handler, allocate_in_handler, allocate_in_handler) == 0);
    pthread_t watcher;
    start_thread(&watcher, 64 * KIB, watch, NULL);
    pthread_t threads[THREAD_COUNT];
    for (uintptr_t i = 0; i < THREAD_COUNT; i++) {
        start_thread(&threads[i], 0, load, (void *)(i + 1));
    }
    for (int i = 0; i < THREAD_COUNT; i++) {
        require(pthread_join(threads[i], NULL) == 0);
    }
    all_done = true;
    require(pthread_join(watcher, NULL) == 0);
    // Two sets of handlers, two of the three handlers in the parent.
    require(handlers_ran == 2 * 2 * forks_done);
    require(forks_done >= THREAD_COUNT);
    behaviour_require_sound_heap();
    malloc_trim(0);
    behaviour_say("%lu forks in %lu minutes, RSS %zu KiB", (unsigned long)forks_done, minutes,
                  rss_bytes() / KIB);
    require_that(!behaviour_on_hakmem() || rss_bytes() < (in_hardened_mode() ? 24 : 8) * MIB,
                 "RSS is %zu KiB after the forks", rss_bytes() / KIB);
    return 0;
}
