// As purge.c, on the one thread of the process, which goes on: its own cache and its own slabs must
// not keep memory. In one phase a part of the blocks stays alive, spread over everything.
#include "activity.h"

struct phase {
    size_t bytes;
    size_t keep_every;  // 0: keep none
    size_t bound;       // may stay resident
};

#define TOTAL_BYTES (128 * MIB)

static const struct phase phases[] = {
    {64, 0, 6 * MIB},
    {1000, 0, 6 * MIB},
    {30000, 0, 6 * MIB},
    {200000, 0, 6 * MIB},
    // One block of 8 KiB in 64 stays, 2 MiB of them; the other pages of their slabs go.
    {8192, 64, 12 * MIB},
};
enum { PHASE_COUNT = sizeof phases / sizeof phases[0] };

// Hardened mode keeps two bytes beside each block, in memory of the allocator's own that is not given back.
static size_t kept_beside(size_t count) {
    return in_hardened_mode() ? 2 * count : 0;
}

static int measure(size_t bytes, size_t keep_every, size_t bound) {
    little_activity(50);
    size_t before = rss_bytes();
    size_t count = TOTAL_BYTES / bytes;
    bound += kept_beside(count);
    void **blocks = (void **)test_memory(count * sizeof *blocks);
    for (size_t i = 0; i < count; i++) {
        blocks[i] = malloc(bytes);
        require(blocks[i] != NULL);
        memset(blocks[i], 1, bytes);
    }
    for (size_t i = 0; i < count; i++) {
        if (keep_every == 0 || i % keep_every != 0) {
            free(blocks[i]);
        }
    }
    size_t table_bytes = count * sizeof *blocks;
    size_t freed = rss_bytes();
    // Free pages inside slabs are looked at every two seconds and go at the second look.
    little_activity(5000);
    size_t after = rss_bytes();
    bool ok = after < before + table_bytes + bound;
    behaviour_say("%zu-byte blocks, one in %zu kept: start %zu KiB, freed %zu KiB, later %zu KiB%s",
                  bytes, keep_every, before / KIB, freed / KIB, (after - table_bytes) / KIB,
                  ok ? "" : "  TOO MUCH");
    for (size_t i = 0; keep_every != 0 && i < count; i += keep_every) {
        free(blocks[i]);
    }
    munmap(blocks, table_bytes);
    behaviour_require_sound_heap();
    return ok ? 0 : 1;
}

int main(void) {
    behaviour_require_allocator();
    pid_t children[PHASE_COUNT];
    for (size_t i = 0; i < PHASE_COUNT; i++) {
        children[i] = fork();
        require(children[i] >= 0);
        if (children[i] == 0) {
            exit(measure(phases[i].bytes, phases[i].keep_every, phases[i].bound));
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
