// A process under RLIMIT_AS or RLIMIT_DATA from its first instruction: it starts, gets a fair part
// of what is allowed, answers NULL with ENOMEM after that, has everything again once blocks are
// freed, and completes when the limit is lifted.
#include "load.h"

#include <sys/resource.h>

static void *work_in_thread(void *argument) {
    uint64_t seed = (uint64_t)(uintptr_t)argument;
    for (int i = 0; i < 3000; i++) {
        size_t bytes = random_log_size(&seed, 50000);
        errno = 0;
        char *block = (char *)malloc(bytes);
        require(block != NULL || errno == ENOMEM);
        if (block != NULL) {
            block[0] = 1;
            block[bytes - 1] = 1;
            free(block);
        }
    }
    return NULL;
}

// Blocks of the hardened mode are longer, with gaps between: a superslab less is granted.
static size_t least_granted(size_t limit, size_t percent) {
    return limit / 100 * percent - (in_hardened_mode() ? 4 * MIB : 0);
}

int main(int count, char **values) {
    behaviour_require_allocator();
    require_that(count == 4, "usage: rlimit as|data KIB PERCENT");
    int resource = strcmp(values[1], "as") == 0 ? RLIMIT_AS : RLIMIT_DATA;
    size_t limit = strtoul(values[2], NULL, 10) * KIB;
    size_t percent = strtoul(values[3], NULL, 10);
    if (getenv("LIMIT_IS_SET") == NULL) {
        struct rlimit soft = {limit, RLIM_INFINITY};
        require(setenv("LIMIT_IS_SET", "1", 1) == 0);
        // From here on this image may be over the limit already; the next one starts below it.
        require(setrlimit(resource, &soft) == 0);
        execv("/proc/self/exe", values);
        require_that(false, "exec: errno %d", errno);
    }
    size_t got = load_grow(4 * limit, 256 * KIB);
    unsigned int refused = load_refusals();
    require_that(refused > 0, "%zu KiB were granted under a limit of %zu KiB", got / KIB,
                 limit / KIB);
    behaviour_say("%zu KiB of %zu KiB before the first refusal", got / KIB, limit / KIB);
    require_that(got >= least_granted(limit, percent), "only %zu KiB of %zu KiB were granted",
                 got / KIB, limit / KIB);
    // To the last byte, then every entry point at the wall.
    for (size_t size_max = 64 * KIB; size_max >= 1024; size_max /= 2) {
        load_grow(4 * limit, size_max);
    }
    for (size_t bytes = 16; bytes < 4 * limit; bytes *= 3) {
        load_every_entry_point(bytes);
    }
    behaviour_require_sound_heap();
    // Half freed: a good part of that can be had again, although the other half lies in between. In
    // hardened mode freed blocks wait in quarantine.
    size_t full = load_live();
    load_shrink(2);
    size_t half = load_live();
    size_t again_min = (full - half) / (in_hardened_mode() ? 20 : 4);
    load_grow(half + again_min, 64 * KIB);
    require_that(load_live() >= half + again_min,
                 "after freeing %zu KiB only %zu KiB were granted again", (full - half) / KIB,
                 (load_live() - half) / KIB);
    // All freed: what was granted at first is granted again.
    load_shrink(1);
    size_t again = load_grow(4 * limit, 256 * KIB);
    behaviour_say("%zu KiB after everything was freed", again / KIB);
    // In hardened mode guards at random places leave superslabs in pieces.
    require(again >= got / 10 * (in_hardened_mode() ? 6 : 8));
    // Threads at the wall, and with all the room.
    for (int room = 0; room < 2; room++) {
        pthread_t threads[3];
        int started = 0;
        pthread_attr_t attributes;
        require(pthread_attr_init(&attributes) == 0);
        require(pthread_attr_setstacksize(&attributes, 64 * KIB) == 0);
        for (uintptr_t i = 0; i < 3; i++) {
            // The stack may be refused too.
            started += pthread_create(&threads[started], &attributes, work_in_thread,
                                      (void *)(i + 1)) == 0;
        }
        for (int i = 0; i < started; i++) {
            require(pthread_join(threads[i], NULL) == 0);
        }
        load_shrink(1);
        malloc_trim(0);
        require_that(room == 0 || started > 0, "no thread can start after everything was freed");
    }
    load_shrink(1);
    behaviour_require_sound_heap();
    struct rlimit lifted = {RLIM_INFINITY, RLIM_INFINITY};
    require(setrlimit(resource, &lifted) == 0);
    load_complete(256 * MIB);
    return 0;
}
