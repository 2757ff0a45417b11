// Memory that is given back out of huge pages is the system's again: the kernel keeps a huge page whole of which a
// part went, charges it further, and shows it nowhere in the process. A memory cgroup sees it.
#include "group.h"

#define BLOCK_BYTES ((size_t)1024)
#define BLOCK_COUNT ((size_t)256 * 1024)
#define KEPT_ONE_IN 512
// What may stay: excess_bytes, the survivors' pages, what the program itself has.
#define LEFT_BYTES (96 * MIB)

#define LONG_BYTES (12 * MIB)
#define LONG_COUNT 32
#define SHORT_BYTES (2 * MIB + 64 * 1024)

// Blocks with a mapping of their own whose ends go: each within a huge page.
static void shorten_blocks(void) {
    char *blocks[LONG_COUNT];
    const size_t before = group_charged_bytes();
    for (size_t i = 0; i < LONG_COUNT; i++) {
        blocks[i] = (char *)malloc(LONG_BYTES);
        require(blocks[i] != NULL);
        memset(blocks[i], 1, LONG_BYTES);
    }
    for (size_t i = 0; i < LONG_COUNT; i++) {
        blocks[i] = (char *)realloc(blocks[i], SHORT_BYTES);
        require(blocks[i] != NULL && blocks[i][SHORT_BYTES - 1] == 1);
    }
    const size_t left = group_charged_bytes();
    behaviour_say("charged for %zu MiB of shortened blocks: %zu MiB",
                  LONG_COUNT * SHORT_BYTES / MIB, (left - before) / MIB);
    require_that(left < before + LONG_COUNT * 3 * MIB, "%zu MiB stay charged",
                 (left - before) / MIB);
    for (size_t i = 0; i < LONG_COUNT; i++) {
        free(blocks[i]);
    }
}

static void be_loaded(void) {
    const size_t before = group_charged_bytes();
    char **blocks = (char **)test_memory(BLOCK_COUNT * sizeof *blocks);
    for (size_t i = 0; i < BLOCK_COUNT; i++) {
        blocks[i] = (char *)malloc(BLOCK_BYTES);
        require(blocks[i] != NULL);
        memset(blocks[i], 1, BLOCK_BYTES);
    }
    const size_t full = group_charged_bytes();
    for (size_t i = 0; i < BLOCK_COUNT; i++) {
        if (i % KEPT_ONE_IN != 0) {
            free(blocks[i]);
        }
    }
    const size_t left = group_charged_bytes();
    behaviour_say("charged: %zu MiB before, %zu full, %zu after", before / MIB, full / MIB,
                  left / MIB);
    require_that(full >= before + BLOCK_COUNT * BLOCK_BYTES, "%zu MiB for 256",
                 (full - before) / MIB);
    require_that(left < before + LEFT_BYTES, "%zu MiB stay charged", (left - before) / MIB);
    for (size_t i = 0; i < BLOCK_COUNT; i += KEPT_ONE_IN) {
        require(blocks[i][BLOCK_BYTES - 1] == 1);
        free(blocks[i]);
    }
}

int main(int count, char **values) {
    (void)count;
    behaviour_require_allocator();
    if (getenv("HUGE_PAGES_STAGE") != NULL) {
        be_loaded();
        shorten_blocks();
        return 0;
    }
    if (!group_make(GIB)) {
        behaviour_say("no cgroup can be made: nothing can be seen");
        return GROUP_SKIPPED;
    }
    group_run_stage("HUGE_PAGES_STAGE", values);
    return 0;
}
