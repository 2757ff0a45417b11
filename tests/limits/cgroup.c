// A memory cgroup three times as large as what is ever live, around a load that lives in one size
// after another, in several threads. Memory that was used for one size must serve the next: a
// process that keeps it is killed. Where no cgroup can be made, the peak of the resident size is held
// to the same bound.
#include "group.h"
#include "load.h"

#define LIVE_BYTES (48 * MIB)

#define LIMIT_BYTES (3 * LIVE_BYTES)

struct share {
    size_t bytes_live;
    size_t size_min;
    size_t size_max;
};

static void *fill_and_free(void *argument) {
    const struct share *share = (const struct share *)argument;
    uint64_t seed = share->size_max;
    size_t room = share->bytes_live / share->size_min;
    void **blocks = (void **)test_memory(room * sizeof *blocks);
    for (int round = 0; round < 3; round++) {
        size_t count = 0;
        for (size_t live = 0; live < share->bytes_live && count < room; count++) {
            size_t bytes =
                share->size_min + random_below(&seed, share->size_max - share->size_min + 1);
            blocks[count] = malloc(bytes);
            require(blocks[count] != NULL);
            memset(blocks[count], 1, bytes);
            live += bytes;
        }
        for (size_t i = 0; i < count; i++) {
            free(blocks[i]);
        }
    }
    munmap(blocks, room * sizeof *blocks);
    return NULL;
}

static void be_loaded(void) {
    static const size_t sizes[][2] = {{48, 64},          {200, 300},         {900, 1100},
                                      {3000, 5000},      {20000, 40000},     {100000, 200000},
                                      {700000, 1500000}, {5000000, 9000000}, {64, 64}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct share share = {LIVE_BYTES, sizes[i][0], sizes[i][1]};
        fill_and_free(&share);
        // The same in four threads with a quarter each.
        share.bytes_live /= 4;
        pthread_t threads[4];
        for (int t = 0; t < 4; t++) {
            start_thread(&threads[t], 128 * KIB, fill_and_free, &share);
        }
        for (int t = 0; t < 4; t++) {
            require(pthread_join(threads[t], NULL) == 0);
        }
        behaviour_say("blocks of %zu to %zu bytes: peak RSS %zu KiB so far", share.size_min,
                      share.size_max, rss_peak_bytes() / KIB);
    }
    behaviour_require_sound_heap();
    size_t peak = rss_peak_bytes();
    behaviour_say("peak RSS %zu KiB for %zu KiB live", peak / KIB, LIVE_BYTES / KIB);
    require_that(peak < LIMIT_BYTES, "peak RSS was %zu KiB", peak / KIB);
}

int main(int count, char **values) {
    (void)count;
    behaviour_require_allocator();
    if (getenv("CGROUP_STAGE") != NULL) {
        be_loaded();
        return 0;
    }
    const bool limited = group_make(LIMIT_BYTES);
    behaviour_say(limited ? "in a group of %zu KiB"
                          : "no cgroup can be made: peak RSS below %zu KiB",
                  LIMIT_BYTES / KIB);
    group_run_stage("CGROUP_STAGE", values);
    return 0;
}
