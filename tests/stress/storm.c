// Every thread allocates for the others and frees what the others allocated: batches of blocks go
// through inboxes, contents are checked where they arrive, and memory stays near what is live.
#include "behaviour.h"

enum { THREAD_COUNT = 6, BATCH_BLOCKS = 64, BATCH_COUNT = 1500, INBOX_BATCHES = 64 };

static uint64_t base_seed;

struct batch {
    unsigned char *block[BATCH_BLOCKS];
    uint32_t bytes[BATCH_BLOCKS];
};

struct inbox {
    pthread_mutex_t lock;
    unsigned int count;
    struct batch *batch[INBOX_BATCHES];
};

static struct inbox inboxes[THREAD_COUNT];

// True when a batch was there.
static bool drain_one(struct inbox *inbox) {
    struct batch *batch = NULL;
    pthread_mutex_lock(&inbox->lock);
    if (inbox->count > 0) {
        batch = inbox->batch[--inbox->count];
    }
    pthread_mutex_unlock(&inbox->lock);
    if (batch == NULL) {
        return false;
    }
    for (int i = 0; i < BATCH_BLOCKS; i++) {
        require_that(pattern_differs(batch->block[i], batch->bytes[i], batch->bytes[i]) ==
                         batch->bytes[i],
                     "a block of %u bytes arrived damaged", batch->bytes[i]);
        free(batch->block[i]);
    }
    free(batch);
    return true;
}

static void *work(void *argument) {
    uintptr_t self = (uintptr_t)argument;
    uint64_t seed = random_stream(base_seed, self + 1);
    for (int sent = 0; sent < BATCH_COUNT;) {
        struct batch *batch = (struct batch *)malloc(sizeof *batch);
        require(batch != NULL);
        // Batches of one size and mixed ones.
        size_t common = random_below(&seed, 2) == 0 ? random_log_size(&seed, 4096) : 0;
        for (int i = 0; i < BATCH_BLOCKS; i++) {
            size_t bytes = common != 0 ? common : random_log_size(&seed, i == 0 ? 200000 : 4096);
            batch->block[i] = (unsigned char *)malloc(bytes);
            require(batch->block[i] != NULL);
            batch->bytes[i] = (uint32_t)bytes;
            pattern_fill(batch->block[i], bytes, bytes);
        }
        bool delivered = false;
        while (!delivered) {
            struct inbox *inbox = &inboxes[random_below(&seed, THREAD_COUNT)];
            pthread_mutex_lock(&inbox->lock);
            if (inbox->count < INBOX_BATCHES) {
                inbox->batch[inbox->count++] = batch;
                delivered = true;
            }
            pthread_mutex_unlock(&inbox->lock);
            if (!delivered) {
                drain_one(&inboxes[self]);
            }
        }
        sent++;
        if (random_below(&seed, 2) == 0) {
            while (drain_one(&inboxes[self])) {
            }
        }
    }
    while (drain_one(&inboxes[self])) {
    }
    return NULL;
}

int main(void) {
    behaviour_require_allocator();
    base_seed = behaviour_seed();
    size_t before = rss_bytes();
    pthread_t threads[THREAD_COUNT];
    for (int i = 0; i < THREAD_COUNT; i++) {
        pthread_mutex_init(&inboxes[i].lock, NULL);
    }
    for (uintptr_t i = 0; i < THREAD_COUNT; i++) {
        start_thread(&threads[i], 0, work, (void *)i);
    }
    for (int i = 0; i < THREAD_COUNT; i++) {
        pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < THREAD_COUNT; i++) {
        while (drain_one(&inboxes[i])) {
        }
    }
    behaviour_require_sound_heap();
    // At most 6 * 64 batches of 64 blocks are live, half of them of 700 bytes on average: 14 MiB
    // and some large ones; caches, and in hardened what waits, have most of the rest. What passed through is 400 MiB.
    size_t peak = rss_peak_bytes();
    behaviour_say("peak %zu KiB over start %zu KiB", peak / KIB, before / KIB);
    require_that(peak < before + 88 * MIB, "peak RSS grew by %zu KiB", (peak - before) / KIB);
    return 0;
}
