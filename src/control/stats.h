// The state of the whole allocator in numbers, gathered heap by heap.
#pragma once

#include "base/base.h"
#include "config/counters.h"
#include "space/size_class.h"

struct stats_class {
    uint64_t block_bytes;
    uint64_t slab_bytes;
    uint64_t live_blocks;    // in the program's hands
    uint64_t cached_blocks;  // in thread caches
    uint64_t free_blocks;    // in slabs, on their way there from another thread, or in quarantine
};

struct stats {
    uint64_t counter[COUNTER_COUNT];
    uint64_t gauge[GAUGE_COUNT];
    struct stats_class class[SIZE_CLASS_COUNT];
};

// Takes each heap's lock in turn, so none may be held. Numbers of threads that are running may lag
// by what is in their caches.
void stats_collect(struct stats *stats);

// Only stats->counter; takes no lock, so it may be called in the child of a fork.
void stats_collect_counters(struct stats *stats);

// What malloc_stats prints, to a file descriptor.
void stats_print(int descriptor);

// The same as JSON, one object, handed to write() part by part. Returns 0, or what write() returned, which ends it when
// it is not 0. No lock is held during the calls.
int stats_write_json(int (*write)(void *context, const char *text, size_t bytes), void *context);
