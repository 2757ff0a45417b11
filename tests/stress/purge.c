// Memory goes back to the system by itself: after everything is freed, two and a half seconds with
// a little activity bring the resident size back near where it was, and as long again brings the
// rest (free pages inside slabs wait longer than empty runs). No malloc_trim. Each phase is a process
// of its own, all at once: most of the time they wait.
#include "activity.h"

enum { THREAD_COUNT = 3 };

#define PHASE_BYTES (192 * MIB)

struct phase {
    const char *name;
    size_t bytes_min;
    size_t bytes_max;
    unsigned int threads;
};

static const struct phase phases[] = {
    {"16..128 bytes", 16, 128, 1},       {"16..4096 bytes", 16, 4096, 1},
    {"1..60 KiB", 1024, 60 * 1024, 1},   {"100..900 KiB", 100 * 1024, 900 * 1024, 1},
    {"5..20 MiB", 5 << 20, 20 << 20, 1}, {"16..4096 bytes in 3 threads", 16, 4096, THREAD_COUNT},
};

static const struct phase *phase;

static void *fill_and_free(void *argument) {
    uint64_t seed = (uint64_t)(uintptr_t)argument;
    size_t share = PHASE_BYTES / phase->threads;
    size_t room = share / phase->bytes_min + 1;
    void **blocks = (void **)test_memory(room * sizeof *blocks);
    size_t count = 0;
    for (size_t total = 0; total < share;) {
        size_t bytes =
            phase->bytes_min + random_below(&seed, phase->bytes_max - phase->bytes_min + 1);
        blocks[count] = malloc(bytes);
        require(blocks[count] != NULL);
        memset(blocks[count], 1, bytes);
        total += bytes;
        count++;
    }
    // Not in order: holes join from all sides.
    for (size_t i = 0; i < count; i++) {
        size_t other = random_below(&seed, count);
        void *moved = blocks[i];
        blocks[i] = blocks[other];
        blocks[other] = moved;
    }
    for (size_t i = 0; i < count; i++) {
        free(blocks[i]);
    }
    munmap(blocks, room * sizeof *blocks);
    return NULL;
}

static int measure(void) {
    little_activity(50);
    size_t before = rss_bytes();
    pthread_t threads[THREAD_COUNT];
    for (uintptr_t t = 0; t < phase->threads; t++) {
        start_thread(&threads[t], 0, fill_and_free, (void *)(t + 1));
    }
    for (unsigned int t = 0; t < phase->threads; t++) {
        require(pthread_join(threads[t], NULL) == 0);
    }
    size_t freed = rss_bytes();
    little_activity(2500);
    size_t soon = rss_bytes();
    little_activity(2500);
    size_t after = rss_bytes();
    // 256 blocks in quarantine keep at most as many pages of 64 KiB from going.
    size_t held_back = in_hardened_mode() ? 18 * MIB : 0;
    bool ok = soon < before + 16 * MIB + held_back && after < before + 6 * MIB + held_back;
    behaviour_say("%s: start %zu KiB, freed %zu KiB, 2.5 s later %zu KiB, 5 s later %zu KiB%s",
                  phase->name, before / KIB, freed / KIB, soon / KIB, after / KIB,
                  ok ? "" : "  TOO MUCH");
    behaviour_require_sound_heap();
    return ok ? 0 : 1;
}

enum { PHASE_COUNT = sizeof phases / sizeof phases[0] };

int main(void) {
    behaviour_require_allocator();
    pid_t children[PHASE_COUNT];
    for (size_t i = 0; i < PHASE_COUNT; i++) {
        children[i] = fork();
        require(children[i] >= 0);
        if (children[i] == 0) {
            phase = &phases[i];
            exit(measure());
        }
    }
    int failures = 0;
    for (size_t i = 0; i < PHASE_COUNT; i++) {
        int status = -1;
        require(waitpid(children[i], &status, 0) == children[i]);
        failures += !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    require_that(failures == 0, "%d phases failed or left too much resident", failures);
    return 0;
}
