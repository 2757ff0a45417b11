// A block costs what it is long under RLIMIT_DATA, not its alignment beside: an alignment that is larger than all that
// is allowed is served, and leaves what it does not need to others.
#include "load.h"

#include <sys/resource.h>

static const size_t limit = 256 * MIB;

static void limit_data(char **values) {
    if (getenv("LIMIT_IS_SET") != NULL) {
        return;
    }
    struct rlimit soft = {limit, RLIM_INFINITY};
    require(setenv("LIMIT_IS_SET", "1", 1) == 0);
    require(setrlimit(RLIMIT_DATA, &soft) == 0);
    execv("/proc/self/exe", values);
    require_that(false, "exec: errno %d", errno);
}

static void check_alignment(size_t alignment, size_t bytes) {
    char *blocks[2];
    for (int i = 0; i < 2; i++) {
        blocks[i] = (char *)aligned_alloc(alignment, bytes);
        require_that(blocks[i] != NULL, "%zu KiB with an alignment of %zu MiB, under %zu MiB",
                     bytes / KIB, alignment / MIB, limit / MIB);
        require((uintptr_t)blocks[i] % alignment == 0);
        memset(blocks[i], 1, bytes);
    }
    for (int i = 0; i < 2; i++) {
        free(blocks[i]);
    }
}

int main(int count, char **values) {
    (void)count;
    behaviour_require_allocator();
    limit_data(values);
    for (size_t alignment = 2 * MIB; alignment <= 1024 * MIB; alignment *= 2) {
        check_alignment(alignment, 4 * KIB);
        check_alignment(alignment, 100 * MIB);
    }
    // What is longer than the limit is refused, whatever its alignment.
    errno = 0;
    void *volatile block = aligned_alloc(512 * MIB, 300 * MIB);
    require(block == NULL && errno == ENOMEM);
    behaviour_require_sound_heap();
    return 0;
}
